from regard.views.page import bundle_modules
from tests.views.static.maps import small

RENDER = """async ([script, record]) => {
    const { default: widget } = await import(URL.createObjectURL(new Blob([script], {type: "text/javascript"})));
    const values = {record, view: "lines", layer: 1, head: "mean"};
    const acts = {};
    const model = {
        get: (name) => values[name],
        set: (name, value) => { values[name] = value; },
        save_changes: () => {},
        on: (event, act) => { acts[event] = act; },
        off: (event) => { delete acts[event]; },
    };
    const el = document.createElement("div");
    document.body.append(el);
    const cleanup = widget.render({model, el});
    const shown = () => [el.querySelector("[aria-selected=true]").textContent, el.querySelectorAll("select")[1].value];
    const first = shown();
    values.head = 2;
    acts["change:head"]();
    const followed = shown();
    el.querySelector("[role=tab]").click();
    const synced = values.view;
    values.record = {...record, title: "another"};
    acts["change:record"]();
    const title = [...el.querySelectorAll("h2")].map((heading) => heading.textContent);
    cleanup();
    return {first, followed, synced, title, left: el.childElementCount, acts: Object.keys(acts)};
}"""


def test_the_viewer_and_python_choose_together(modules):
    result = modules.evaluate(RENDER, [bundle_modules("widget"), small().record()])
    assert result == {
        "first": ["Lines", "mean"],
        "followed": ["Lines", "2"],
        "synced": "matrix",
        "title": ["another"],
        "left": 0,
        "acts": [],
    }


ENLARGE = """async ([script, record]) => {
    const { default: widget } = await import(URL.createObjectURL(new Blob([script], {type: "text/javascript"})));
    const values = {record, view: "heads", layer: 0, head: "mean"};
    const acts = [];
    const model = {
        get: (name) => values[name],
        set: (name, value) => {
            if (values[name] === value) return;
            values[name] = value;
            for (const [event, act] of acts) if (event === `change:${name}`) act();
        },
        save_changes: () => {},
        on: (event, act) => acts.push([event, act]),
        off: () => {},
    };
    const hosts = [document.createElement("div"), document.createElement("div")];
    document.body.append(...hosts);
    for (const el of hosts) widget.render({model, el});
    hosts[0].querySelector("[aria-label='Enlarge layer 1, head 2']").click();
    const shown = hosts.map((el) => [
        el.querySelector("[role=tab][aria-selected=true]").textContent,
        ...[...el.querySelectorAll("select")].map((menu) => menu.value),
    ]);
    return {synced: [values.view, values.layer, values.head], shown};
}"""


def test_a_model_that_tells_of_each_change_at_once_keeps_all_of_a_choice(modules):
    result = modules.evaluate(ENLARGE, [bundle_modules("widget"), small().record()])
    assert result == {"synced": ["matrix", 1, 2], "shown": [["Matrix", "1", "2"], ["Matrix", "1", "2"]]}
