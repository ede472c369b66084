"""Write the report of a comparison: report.md with PNG pictures, and report.html, which is self-contained."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from regard.compare.charts import Chart, build_charts
from regard.compare.plan import Plan, to_file_name
from regard.compare.report import Look, ModelResult, Report, list_commands
from regard.files import write_bytes, write_text
from regard.metrics.items import ITEM_METRICS
from regard.settings import to_toml
from regard.views.document import build_document, read_static
from regard.views.svg.matrix import draw_matrix_svg


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write report.md with its pictures, report.html, and the recipe of every model; return the two reports."""
    charts = build_charts(report)
    for chart in charts:
        write_bytes(folder / "pictures" / f"{chart.name}.png", chart.render("png"))
    for variant in report.plan.variants:
        write_text(folder / "recipes" / f"{variant.slug}.toml", to_toml(variant.table))
    for shown in (shown for group in group_looks(report).values() for shown in group):
        if shown.look.map is not None:
            shown.look.map.save_picture(shown.get_file(folder))
    markdown, html = folder / "report.md", folder / "report.html"
    write_text(markdown, build_markdown(report, folder, charts))
    write_text(html, build_html(report, folder, charts))
    return [markdown, html]


class ShownLook(NamedTuple):
    """The attention of one model for one text, and the number of the text among those of the model."""

    model: str
    number: int
    look: Look

    def get_file(self, folder: Path) -> Path:
        """Return the picture of the map."""
        return folder / "pictures" / f"look-{self.number}-{to_file_name(self.model)}.png"


def group_looks(report: Report) -> dict[str, list[ShownLook]]:
    """Return what the models look at by text; models of other tokens may have been tested on other parts of a text."""
    groups: dict[str, list[ShownLook]] = {}
    for model in report.models:
        for number, look in enumerate(model.looks, 1):
            groups.setdefault(look.text, []).append(ShownLook(model.name, number, look))
    return groups


def build_rows(report: Report) -> list[list[str]]:
    """Return the table of scores, with its header."""
    decimals, extra = report.metric.decimals, sorted({name for model in report.models for name in model.scores})
    better = "higher" if report.metric.higher_is_better else "lower"
    header = [
        "model",
        "parameters",
        f"{report.metric.title} ({better} is better)",
        "95 % interval",
        "difference from the first",
        *(name.replace("_", " ") for name in extra),
    ]
    rows = [header]
    for model in report.models:
        spread = f" ± {model.spread:.{decimals}f}" if model.spread is not None else ""
        rows.append(
            [
                model.name,
                f"{model.parameters:,}",
                f"{model.score.value:.{decimals}f}{spread}",
                f"{model.score.low:.{decimals}f} to {model.score.high:.{decimals}f}",
                format_difference(model, decimals),
                *(f"{model.scores[name]:.4f}" if name in model.scores else "" for name in extra),
            ]
        )
    return rows


def format_difference(model: ModelResult, decimals: int) -> str:
    """Format the difference of a model from the first, and its p-value."""
    comparison = model.against_first
    return "" if comparison is None else f"{comparison.difference:+.{decimals}f} (p {comparison.p_value:.4f})"


def build_cost_rows(report: Report) -> list[list[str]]:
    """Return the table of time and memory, with its header."""
    rows = [["model", "updates", "seconds of training", "tokens/s in training", "memory", "tokens/s in the test"]]
    for model in report.models:
        rows.append(
            [
                model.name,
                f"{model.steps:,}",
                f"{model.seconds:.0f}",
                f"{model.tokens_per_second:,.0f}",
                f"{model.memory / 2**20:,.0f} MiB",
                f"{model.test_tokens_per_second:,.0f}",
            ]
        )
    return rows


def build_band_rows(report: Report, *, known_only: bool) -> list[list[str]]:
    """Return the table of scores by length, with its header; of all items, or of those without unknown words."""
    bands_of = {model.name: model.known_bands if known_only else model.bands for model in report.models}
    bands = bands_of[report.models[0].name]
    decimals = report.curve_metric.decimals
    rows = [["model", *(f"{band.lengths} ({band.items})" for band in bands)]]
    for model, its_bands in bands_of.items():  # a model may lack the longest bands, if it cannot read as much
        values = {band.longest: f"{band.score.value:.{decimals}f}" for band in its_bands}
        rows.append([model, *(values.get(band.longest, "") for band in bands)])
    return rows


def describe_conditions(report: Report) -> list[str]:
    """Return what the results depend on, one sentence each."""
    plan, first = report.plan, report.models[0]
    lines = [
        f"Tested on {report.part} ({len(first.items[0]):,} items); {first.items[0].signature}.",
        describe_seeds(plan.seeds),
        f"Trained on {plan.device}{describe_threads(plan.threads)}; {describe_jobs(report.jobs)}.",
        f"{'; '.join(report.versions)}.",
    ]
    if report.metric is ITEM_METRICS["bits_per_character"]:
        lines.insert(1, "The models have different tokens: compare bits per character, but no loss per token.")
    if report.optimistic:
        lines.insert(
            1, "The same items chose the best checkpoint of each run, so the scores are optimistic; pass --test."
        )
    return lines


def describe_seeds(seeds: Sequence[int]) -> str:
    """Describe the seeds and what the intervals are of."""
    bootstrap = "Intervals and p-values are from a paired bootstrap over the test items"
    if len(seeds) == 1:
        return f"One seed, {seeds[0]}. {bootstrap}; they do not cover how much trainings differ."
    names = ", ".join(map(str, seeds))
    return f"Seeds {names}; ± is the standard deviation over seeds. {bootstrap}, for the mean over seeds."


def describe_threads(threads: int | None) -> str:
    """Describe the CPU threads of a training, if they were set."""
    return "" if threads is None else f" with {threads} CPU thread{'s' if threads > 1 else ''} each"


def describe_repeat(plan: Plan) -> str:
    """Introduce the commands that repeat single trainings."""
    others = f", here with seed {plan.seeds[0]} of {len(plan.seeds)}" if len(plan.seeds) > 1 else ""
    return f"Each training alone, from its own recipe{others}:"


def describe_jobs(jobs: int) -> str:
    """Describe how many trainings ran at a time."""
    if jobs == 1:
        return "one training at a time"
    return f"up to {jobs} trainings at the same time, so times are of a shared device"


def build_markdown(report: Report, folder: Path, charts: Sequence[Chart]) -> str:
    """Build the report as Markdown."""
    parts = ["# Comparison of models", to_markdown_table(build_rows(report))]
    parts += ["\n".join(f"- {line}" for line in describe_conditions(report))]
    parts += [f"- {name} failed: {reason}" for name, reason in report.failures.items()]
    for chart in charts:
        parts += [f"## {chart.title}", f"![{chart.title}](pictures/{chart.name}.png)"]
        if chart.by_length:
            parts.append(to_markdown_table(build_band_rows(report, known_only=chart.known_only)))
    parts += ["## Time and memory", to_markdown_table(build_cost_rows(report)), "## Attention"]
    for text, group in group_looks(report).items():
        parts.append(f"### {escape(text)}")
        for shown in group:
            picture = f"\n\n![{shown.model}]({shown.get_file(folder).relative_to(folder)})"
            parts.append(f"{shown.model}:" + (picture if shown.look.map is not None else f" {shown.look.reason}"))
    parts += ["## Repeat it", f"```sh\n{report.plan.command}\n```", describe_repeat(report.plan)]
    parts.append("```sh\n" + "\n".join(list_commands(report.plan, folder)) + "\n```")
    return "\n\n".join(parts) + "\n"


def to_markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows, the first of them the header, as a Markdown table."""
    header, *body = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    lines = [header, ["---"] * len(header), *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def build_html(report: Report, folder: Path, charts: Sequence[Chart]) -> str:
    """Build the report as one HTML page that loads nothing."""
    parts = ["<main><h1>Comparison of models</h1>", to_html_table(build_rows(report)), "<ul>"]
    parts += [f"<li>{escape(line)}</li>" for line in describe_conditions(report)]
    parts += [f"<li>{escape(name)} failed: {escape(reason)}</li>" for name, reason in report.failures.items()]
    parts.append("</ul>")
    for chart in charts:
        url = "data:image/svg+xml;base64," + base64.b64encode(chart.render("svg")).decode()
        parts += [f"<h2>{chart.title}</h2>", f'<img alt="{chart.title}" src="{url}">']
        if chart.by_length:
            parts.append(to_html_table(build_band_rows(report, known_only=chart.known_only)))
    parts += ["<h2>Time and memory</h2>", to_html_table(build_cost_rows(report)), "<h2>Attention</h2>"]
    for text, group in group_looks(report).items():
        parts.append(f"<h3>{escape(text)}</h3><div class=maps>")
        for model, _, look in group:
            drawing = draw_matrix_svg(look.map) if look.map is not None else f"<p>{escape(look.reason)}</p>"
            parts.append(f"<figure><figcaption>{escape(model)}</figcaption>{drawing}</figure>")
        parts.append("</div>")
    parts += ["<h2>Repeat it</h2>", f"<pre>{escape(report.plan.command)}</pre>"]
    commands = escape("\n".join(list_commands(report.plan, folder)))
    parts += [f"<p>{escape(describe_repeat(report.plan))}</p>", f"<pre>{commands}</pre>", "</main>"]
    style = read_static("report.css")
    return build_document("Comparison of models", "\n".join(parts), style=style, images=True)


def to_html_table(rows: Sequence[Sequence[str]]) -> str:
    """Format rows, the first of them the header, as an HTML table."""
    header, *body = rows
    lines = ["<table><tr>", *(f"<th>{escape(cell)}</th>" for cell in header), "</tr>"]
    for row in body:
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>")
    return "".join([*lines, "</table>"])
