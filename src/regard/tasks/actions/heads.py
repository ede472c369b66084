"""`regard heads`: measure what each attention head does, on a text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from cyclopts import Parameter

from regard.bounds import Bounds
from regard.errors import RegardError
from regard.messages import print_message
from regard.tasks.actions import RUN_OR_HUGGING_FACE, Action, File, Invocation

Sort = Literal["entropy", "first", "previous", "induction", "retrieval", "distance"]


@dataclass(frozen=True, kw_only=True)
class Heads(Action):
    """Measure each attention head while the model reads a text.

    Attributes:
        text: Text file to read; - for stdin.
        max_tokens: Read at most so many tokens of it.
        queries: Measure only so many evenly spaced tokens (default: all, of more than 4,096 tokens 2,048).
        sort: Order the table by a measure, largest first.
        png: Draw a PNG file.
        svg: Draw an SVG file.
        json: Write the scores and their definitions as JSON.
    """

    summary: ClassVar[str] = "Measure what each attention head does: induction, retrieval, previous token and more."
    example: ClassVar[str] = "heads hf:models/gpt2 --text book.txt --sort induction"
    hint: ClassVar[str] = "use --text {first}"
    run_help: ClassVar[str] = RUN_OR_HUGGING_FACE

    text: File | None = None
    max_tokens: Annotated[int, Bounds(2, 10**7)] = 32_768
    queries: Annotated[int | None, Bounds(1, 10**7), Parameter(show_default=False)] = None
    sort: Sort | None = None
    png: Path | None = None
    svg: Path | None = None
    json: Path | None = None

    def check(self) -> None:
        from regard.views.figure import check_matplotlib

        if self.text is None:
            raise RegardError("heads: --text is required: a text file, or - for stdin")
        for option, path in (("png", self.png), ("svg", self.svg)):
            if path is not None and path.suffix.lower() != f".{option}":
                raise RegardError(f"--{option}: expected a file that ends in .{option}, got {path}")
        if self.png or self.svg:
            check_matplotlib()

    def run(self, predictor: Any, invocation: Invocation) -> None:
        from regard.data.formats.lines import iter_numbered_lines

        assert self.text is not None, "check makes sure of this"
        text = "\n".join(line for _, line in iter_numbered_lines(self.text))
        tokens, total = predictor.encode_start(text, self.max_tokens)
        if tokens.shape[1] < total and not invocation.quiet:
            print_message(f"note: {self.text} has {total:,} tokens; the first {tokens.shape[1]:,} are read")
        scores = predictor.score_heads(tokens, self.queries)
        for path in (self.png, self.svg):
            if path is not None:
                scores.save_picture(path)
        if self.json is not None:
            scores.save(self.json)
        paths = [path for path in (self.png, self.svg, self.json) if path]
        if not paths:
            print(scores.draw(sort=self.sort))
        elif not invocation.quiet:
            print_message(f"wrote {' '.join(map(str, paths))}")
