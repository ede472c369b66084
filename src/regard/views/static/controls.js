// Controls of the viewer.

/**
 * Create an element with a class name and text.
 * @param {string} tag
 * @param {string} name
 * @param {string} [text]
 * @returns {HTMLElement}
 */
export function element(tag, name, text = "") {
  const made = document.createElement(tag);
  made.className = name;
  made.textContent = text;
  return made;
}

/**
 * Create a button with a symbol, and a name for the tooltip and screen readers.
 * @param {string} symbol
 * @param {string} name
 * @param {() => void} act
 * @returns {HTMLButtonElement}
 */
export function button(symbol, name, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = symbol;
  made.title = name;
  made.setAttribute("aria-label", name);
  made.addEventListener("click", act);
  return made;
}

/**
 * Create tabs that can be navigated with the arrow keys.
 * @param {string} id prefix of their ids
 * @param {string[]} names
 * @param {Record<string, string>} titles labels by name
 * @param {Record<string, string>} tooltips by name
 * @param {(name: string) => void} choose
 * @returns {{list: HTMLElement, show: (name: string) => void}}
 */
export function tabs(id, names, titles, tooltips, choose) {
  const list = element("div", "tabs");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Views");
  const all = names.map((name) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `${id}-tab-${name}`;
    tab.textContent = titles[name];
    tab.title = tooltips[name];
    tab.setAttribute("role", "tab");
    tab.setAttribute("aria-controls", `${id}-panel`);
    tab.addEventListener("click", () => choose(name));
    return tab;
  });
  list.append(...all);
  list.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const here = all.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    const next = (here + step + all.length) % all.length;
    choose(names[next]);
    all[next].focus();
    event.preventDefault();
  });
  const show = (/** @type {string} */ name) => {
    all.forEach((tab, index) => {
      tab.setAttribute("aria-selected", String(names[index] === name));
      tab.tabIndex = names[index] === name ? 0 : -1;
    });
  };
  return { list, show };
}

/**
 * Create a menu for a layer or head, or their mean; hidden if there is only one.
 * @param {string} name
 * @param {number} count
 * @param {(choice: import("./record.js").Choice) => void} choose
 * @returns {{label: HTMLElement, menu: HTMLSelectElement}}
 */
export function choice(name, count, choose) {
  const label = document.createElement("label");
  const menu = document.createElement("select");
  label.append(`${name} `, menu);
  label.hidden = count < 2;
  menu.append(new Option("mean", "mean"));
  for (let number = 0; number < count; number++) menu.append(new Option(String(number), String(number)));
  menu.addEventListener("change", () => choose(menu.value === "mean" ? "mean" : Number(menu.value)));
  return { label, menu };
}

/**
 * Create a button that cycles through the themes: auto (as the system), light and dark.
 * @param {HTMLElement} root the element to theme
 * @param {() => void} turned
 * @returns {HTMLButtonElement}
 */
export function themeButton(root, turned) {
  const themes = ["auto", "light", "dark"];
  const made = button("", "", () => {
    const now = themes[(themes.indexOf(root.dataset.theme ?? "auto") + 1) % themes.length];
    if (now === "auto") delete root.dataset.theme;
    else root.dataset.theme = now;
    name(now);
    turned();
  });
  const name = (/** @type {string} */ theme) => {
    made.textContent = `\u25d0 Theme: ${theme}`;
    made.title = "Switch between the system's, light and dark theme";
    made.setAttribute("aria-label", `Theme: ${theme}`);
  };
  name("auto");
  return made;
}
