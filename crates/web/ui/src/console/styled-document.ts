// xterm writes style elements and style attributes, which the console's Content-Security-Policy blocks. In the bundle of the
// terminal, `document` is the document of this file (build.mjs). It puts the text of styles into constructed style sheets and
// style objects, which the policy allows.
const real = globalThis.document;

export const styledDocument: Document = new Proxy(real, {
  get(target, name) {
    if (name === "createElement") {
      return createElement;
    }
    const value: unknown = Reflect.get(target, name, target);
    return typeof value === "function" ? (value.bind(target) as unknown) : value;
  },
  set(target, name, value) {
    return Reflect.set(target, name, value, target);
  },
});

function createElement(tag: string): HTMLElement {
  if (tag === "style") {
    return sheetElement();
  }
  const element = real.createElement(tag);
  element.setAttribute = setAttribute;
  return element;
}

function setAttribute(this: HTMLElement, name: string, value: string): void {
  if (name === "style") {
    this.style.cssText = value;
  } else {
    Element.prototype.setAttribute.call(this, name, value);
  }
}

/** An element in the place of a style element. Its text is a style sheet of the document until the element is removed. */
function sheetElement(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const element = real.createElement("template");
  real.adoptedStyleSheets.push(sheet);
  Object.defineProperty(element, "textContent", {
    get: () => Array.from(sheet.cssRules, ({ cssText }) => cssText).join("\n"),
    set: (text: string) => sheet.replaceSync(text),
  });
  element.remove = () => {
    real.adoptedStyleSheets = real.adoptedStyleSheets.filter((other) => other !== sheet);
    Element.prototype.remove.call(element);
  };
  return element;
}
