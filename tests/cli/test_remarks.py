from regard.cli.remarks import Remarks
from regard.loading import load


def test_all_sources_count_together(reverse_run, capsys):
    model, remarks = load(reverse_run), Remarks()
    remarks.hear(model.predict(["a b c d", "z"]))
    remarks.hear(model.predict(["", "a b c d"]))
    assert (remarks.lines, remarks.tokens, remarks.unknown, remarks.tab) == (4, 9, 1, None)
    remarks.say()
    assert capsys.readouterr() == ("", "11 % of the source tokens are unknown to this model\n")


def test_nothing_is_said_of_what_is_known(reverse_run, capsys):
    remarks = Remarks()
    remarks.say()  # no source at all
    remarks.hear(load(reverse_run).predict(["a b c d", "", "d c b"]))
    remarks.say()
    assert capsys.readouterr() == ("", "")
