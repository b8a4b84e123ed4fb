// Images of prompts and tool results. Only bytes that are in the conversation are shown: no address is loaded.

import { h } from "./dom.js";

const TYPES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Whether a part of some content is shown as an image. */
export function isPicture(part) {
  return part.type === "image" && TYPES.has(part.media_type) && typeof part.data === "string";
}

/** The images of some content; nothing without any. */
export function pictures(content) {
  const images = content.filter(isPicture);
  if (!images.length) return [];
  return [h("div", { class: "pictures" }, ...images.map((part) => h("img", { src: `data:${part.media_type};base64,${part.data}`, alt: "Image", loading: "lazy" })))];
}
