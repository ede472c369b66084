import numpy as np
import pytest

from tests.views.static.maps import WEIGHTS, small

SHEET = """async ([record, layer, head]) => {
    const { Attention } = await import('/record.js');
    const sheet = new Attention(record).sheet(layer, head);
    const cells = (sheet) => Array.from({length: sheet.rows}, (_, row) =>
        Array.from({length: sheet.columns}, (_, column) => sheet.at(row, column)));
    const seen = Array.from({length: sheet.rows}, (_, row) =>
        sheet.seen(row).map(({index, weight}) => [index, weight]));
    const turned = cells(sheet.transposed());
    return {cells: cells(sheet), turned, received: [...sheet.received], most: sheet.most, seen};
}"""
CHOICES = [(0, 0), (1, 2), ("mean", 1), (0, "mean"), ("mean", "mean")]


@pytest.mark.parametrize(("layer", "head"), CHOICES)
@pytest.mark.parametrize("kept", [None, 5, 2])
def test_a_sheet_holds_the_weights_of_the_record(modules, layer, head, kept):
    picture = small() if kept is None else small().keep_top(kept)
    sheet = modules.evaluate(SHEET, [picture.record(), layer, head])
    chosen = WEIGHTS[
        slice(None) if layer == "mean" else slice(layer, layer + 1),
        slice(None) if head == "mean" else slice(head, head + 1),
    ].astype(np.float64)
    received = chosen.sum(2).mean((0, 1))  # of all weights, also where some are not kept
    if kept:
        chosen = np.where(chosen >= np.sort(chosen)[..., [-kept]], chosen, 0)
    expected = chosen.mean((0, 1))
    np.testing.assert_allclose(sheet["cells"], expected, rtol=1e-6)
    np.testing.assert_allclose(sheet["turned"], expected.T, rtol=1e-6)
    np.testing.assert_allclose(sheet["received"], received, rtol=1e-6)
    assert sheet["most"] == pytest.approx(expected.max())
    for row, seen in zip(expected, sheet["seen"], strict=True):
        assert [place for place, _ in seen] == [place for place in np.argsort(-row, kind="stable") if row[place]]


def test_a_row_that_sees_nothing_is_empty(modules):
    record = small().record()
    record["weights"] = {
        "values": [[[[0.0, 0.0]] * 3 + [[1.0, 0.0]]]],
        "indices": [[[[-1, -1]] * 3 + [[4, -1]]]],
        "received": [[[0, 0, 0, 0, 1.0]]],
    }
    sheet = modules.evaluate(SHEET, [record, 0, 0])
    assert sheet["seen"] == [[], [], [], [[4, 1]]]
    assert sheet["received"] == [0, 0, 0, 0, 1]
