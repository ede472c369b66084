// The parts that the viewer is put together from.

/**
 * An element of a class.
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
 * A button with a sign upon it, and a name that is read out.
 * @param {string} sign
 * @param {string} name
 * @param {() => void} act
 * @returns {HTMLButtonElement}
 */
export function button(sign, name, act) {
  const made = document.createElement("button");
  made.type = "button";
  made.textContent = sign;
  made.title = name;
  made.setAttribute("aria-label", name);
  made.addEventListener("click", act);
  return made;
}

/**
 * Tabs, which the arrow keys go through.
 * @param {string} id what their ids begin with
 * @param {string[]} names
 * @param {Record<string, string>} titles by name
 * @param {(name: string) => void} choose
 * @returns {{list: HTMLElement, show: (name: string) => void}}
 */
export function tabs(id, names, titles, choose) {
  const list = element("div", "tabs");
  list.setAttribute("role", "tablist");
  list.setAttribute("aria-label", "Views");
  const all = names.map((name) => {
    const tab = document.createElement("button");
    tab.type = "button";
    tab.id = `${id}-tab-${name}`;
    tab.textContent = titles[name];
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
    all.forEach((tab, place) => {
      tab.setAttribute("aria-selected", String(names[place] === name));
      tab.tabIndex = names[place] === name ? 0 : -1;
    });
  };
  return { list, show };
}

/**
 * A choice of one layer or head, or of their mean; it is hidden where there is but one.
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
 * A button that turns from the system's theme to light, to dark, and back.
 * @param {HTMLElement} root what is light or dark
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
    made.textContent = `\u25d0 ${theme}`;
    made.title = `Theme: ${theme}`;
    made.setAttribute("aria-label", made.title);
  };
  name("auto");
  return made;
}
