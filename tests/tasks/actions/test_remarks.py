from regard.tasks.actions.remarks import Remarks
from regard.tasks.loading import load


def test_all_sources_count_together(reverse_run, capsys):
    tokenizer, remarks = load(reverse_run).tokenizers.source, Remarks("source tokens")
    for source in ("a b c d", "z", "", "a b c d"):
        remarks.hear(tokenizer.encode(source), source)
    assert (remarks.lines, remarks.tokens, remarks.unknown, remarks.tab) == (4, 9, 1, None)
    remarks.say()
    assert capsys.readouterr() == ("", "11 % of the source tokens are unknown to this model\n")


def test_nothing_is_said_of_what_is_known(reverse_run, capsys):
    remarks = Remarks()
    remarks.say()  # no source at all
    for source in ("a b c d", "", "d c b"):
        remarks.hear(load(reverse_run).tokenizers.source.encode(source))
    remarks.say()
    assert capsys.readouterr() == ("", "")
