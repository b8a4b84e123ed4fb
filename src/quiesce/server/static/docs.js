// The reference at /docs: openapi.json as a page. Text only ever becomes a text node.

import { h, pretty, say } from "./dom.js";

const METHODS = ["get", "post", "delete"];
const nameOf = (reference) => reference.split("/").pop();

/** What a schema allows, with links to those that have a name. */
function typeOf(schema = {}) {
  if (schema.$ref) return [h("a", { href: `#schema-${nameOf(schema.$ref)}` }, nameOf(schema.$ref))];
  const several = schema.anyOf ?? schema.oneOf;
  if (several) return several.flatMap((each, index) => [index ? " or " : "", ...typeOf(each)]);
  if (schema.enum) return [schema.enum.map((each) => JSON.stringify(each)).join(" or ")];
  if (schema.type === "array") return ["list of ", ...typeOf(schema.items)];
  return [schema.format ?? schema.type ?? "any value"];
}

function table(headings, rows) {
  const head = h("tr", {}, headings.map((each) => h("th", { scope: "col" }, each)));
  const body = rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell))));
  return h("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": headings[0] },
    h("table", {}, h("thead", {}, head), h("tbody", {}, body)));
}

function fieldName(name, isRequired) {
  return isRequired ? [name, " ", h("span", { class: "required" }, "required")] : [name];
}

function example(value) {
  return value && Object.keys(value).length ? h("pre", { tabindex: "0" }, pretty(value)) : null;
}

/** The body of a request or a response: its media type and its schema. */
function content(described) {
  return Object.entries(described ?? {}).map(([kind, each]) =>
    h("p", {}, each.schema ? typeOf(each.schema) : `${kind}: a stream of events`));
}

function operation(method, path, described) {
  const parts = [
    h("h3", {}, h("span", { class: `method ${method}` }, method), ` ${path}`),
    h("p", {}, h("strong", {}, described.summary), ". ", described.description),
  ];
  if (described.parameters.length) {
    parts.push(h("h4", {}, "Parameters"), table(["Name", "In", "Value", "Meaning"], described.parameters.map((each) =>
      [fieldName(each.name, each.required), each.in, typeOf(each.schema), each.description])));
  }
  if (described.requestBody) {
    const optional = described.requestBody.required ? "" : " (may be left out)";
    parts.push(h("h4", {}, `Body${optional}`), ...content(described.requestBody.content),
      example(described.requestBody.content["application/json"].example));
  }
  parts.push(h("h4", {}, "Answers"), table(["Status", "Meaning", "Body"], Object.entries(described.responses).map(
    ([status, each]) => [status, each.description, content(each.content)])));
  return h("section", { id: described.operationId }, parts);
}

function schema(name, described) {
  const parts = [h("h3", {}, name), described.description ? h("p", {}, described.description) : null];
  const fields = Object.entries(described.properties ?? {});
  if (fields.length) {
    const required = new Set(described.required ?? []);
    parts.push(table(["Field", "Value", "Meaning"], fields.map(([field, each]) =>
      [fieldName(field, required.has(field)), typeOf(each), each.description ?? ""])));
  } else {
    parts.push(h("p", {}, typeOf(described)));
  }
  parts.push(example(described.examples?.[0]));
  return h("section", { id: `schema-${name}` }, parts);
}

function draw(whole) {
  const [page, contents] = [document.getElementById("operations"), document.getElementById("contents")];
  say(document.getElementById("title"), `${whole.info.title} ${whole.info.version}: the HTTP interface`);
  say(document.getElementById("about"), `${whole.info.description} ${whole.components.securitySchemes.key.description}`);
  const found = Object.entries(whole.paths).flatMap(([path, methods]) =>
    METHODS.filter((method) => methods[method]).map((method) => [method, path, methods[method]]));
  for (const tag of whole.tags) {
    page.append(h("h2", {}, tag.name), h("p", {}, tag.description));
    contents.append(h("h2", {}, tag.name));
    for (const [method, path, described] of found.filter(([, , each]) => each.tags.includes(tag.name))) {
      page.append(operation(method, path, described));
      contents.append(h("a", { href: `#${described.operationId}` }, described.summary));
    }
  }
  page.append(h("h2", {}, "schemas"));
  contents.append(h("h2", {}, "schemas"));
  for (const [name, described] of Object.entries(whole.components.schemas).sort(([a], [b]) => a.localeCompare(b))) {
    page.append(schema(name, described));
    contents.append(h("a", { href: `#schema-${name}` }, name));
  }
  if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
}

try {
  const answer = await fetch("openapi.json");
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  draw(await answer.json());
} catch (error) {
  say(document.getElementById("about"), `openapi.json could not be read: ${error.message}. Reload the page to try again.`);
}
