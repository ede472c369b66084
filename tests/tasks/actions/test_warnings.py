from regard.tasks.actions.warnings import Warnings
from regard.tasks.loading import load


def test_all_sources_count_together(reverse_run, capsys):
    tokenizer, warnings = load(reverse_run).tokenizers.source, Warnings("source tokens")
    for source in ("a b c d", "z", "", "a b c d"):
        warnings.add_line(tokenizer.encode(source), source)
    assert (warnings.lines, warnings.tokens, warnings.unknown, warnings.tab_line) == (4, 9, 1, None)
    warnings.print_all()
    assert capsys.readouterr() == ("", "11% of the source tokens are unknown to the model\n")


def test_nothing_is_said_of_what_is_known(reverse_run, capsys):
    warnings = Warnings()
    warnings.print_all()  # no source at all
    for source in ("a b c d", "", "d c b"):
        warnings.add_line(load(reverse_run).tokenizers.source.encode(source))
    warnings.print_all()
    assert capsys.readouterr() == ("", "")
