// Images and PDFs for a prompt: chosen, dropped or pasted.

import { h, show } from "./dom.js";

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const TYPES = [...IMAGES, "application/pdf"];

export class Attachments {
  /** `complain(text)` shows why a file is not taken. */
  constructor(complain) {
    this.complain = complain;
    this.parts = [];
    this.reading = Promise.resolve(); // until every file that was chosen is read
    this.list = h("ul", { class: "attachments", "aria-label": "Attachments", hidden: true });
    this.input = h("input", { type: "file", multiple: true, accept: TYPES.join(","), hidden: true, "aria-label": "Files to attach", on: { change: () => this.#chosen() } });
    this.button = h("button", { type: "button", class: "quiet", id: "attach", on: { click: () => this.input.click() } }, "Attach");
  }

  /** Take the files of a drop or a paste; text stays with the browser. */
  take(event, { files }) {
    if (!files?.length) return;
    event.preventDefault();
    this.add([...files]);
  }

  /** The prompt with what is attached, also with files that are still being read. */
  async with(text) {
    await this.reading;
    return this.parts.length ? [{ type: "text", text }, ...this.parts] : text;
  }

  clear() {
    this.parts = [];
    this.#draw();
  }

  add(files) {
    this.reading = this.reading.then(() => this.#read(files));
  }

  async #read(files) {
    for (const file of files) {
      if (!TYPES.includes(file.type)) {
        this.complain(`${file.name} is not attached: only images (PNG, JPEG, GIF, WebP) and PDFs can be.`);
        continue;
      }
      const data = await base64(file).catch(() => null);
      if (data === null) {
        this.complain(`${file.name} is not attached: it could not be read.`);
        continue;
      }
      const isImage = IMAGES.includes(file.type);
      this.parts.push(isImage ? { type: "image", media_type: file.type, data } : { type: "document", media_type: file.type, data, name: file.name });
    }
    this.#draw();
  }

  #chosen() {
    this.add([...this.input.files]);
    this.input.value = "";
  }

  #draw() {
    show(this.list, this.parts.length > 0);
    this.list.replaceChildren(...this.parts.map((part, index) => {
      const name = part.name ?? `image ${index + 1}`;
      const remove = h("button", { type: "button", class: "quiet small", "aria-label": `Remove ${name}`, on: { click: () => this.#remove(part) } }, "Remove");
      return h("li", {}, part.type === "image" ? h("img", { src: `data:${part.media_type};base64,${part.data}`, alt: "" }) : "", h("span", {}, name), remove);
    }));
  }

  #remove(part) {
    this.parts = this.parts.filter((each) => each !== part);
    this.#draw();
    this.button.focus();
  }
}

function base64(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}
