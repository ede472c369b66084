import hashlib
import re
from importlib import resources

from regard.serve.files import load_page_files

IMPORT = re.compile(r'(?:from |import\()"([^"]+)"')
ADDRESS = re.compile(r'(?:href|src)="(/[^"]+)"')


def test_every_file_of_the_page_has_an_address():
    files = load_page_files()
    for folder in ("serve/static", "views/static"):
        for file in resources.files("regard").joinpath(folder).iterdir():
            assert files[f"/{folder}/{file.name}"].content == file.read_bytes()
    assert files["/"] is files["/serve/static/index.html"]
    assert files["/docs"].etag == f'"{hashlib.sha256(files["/docs"].content).hexdigest()[:32]}"'
    assert len(files) >= 20


def test_all_that_a_file_asks_for_is_there():
    files = load_page_files()
    count = 0
    for address, file in files.items():
        text = file.content.decode()
        folder = address.rpartition("/")[0]
        for target in IMPORT.findall(text):
            while target.startswith("../"):
                folder, target = folder.rpartition("/")[0], target.removeprefix("../")
            assert f"{folder}/{target.removeprefix('./')}" in files
            folder = address.rpartition("/")[0]
            count += 1
        for target in ADDRESS.findall(text):
            assert target in {*files, "/openapi.json"}
            count += 1
    assert count >= 30


def test_nothing_is_ever_set_as_markup():
    for address, file in load_page_files().items():
        text = file.content.decode()
        for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick="):
            assert name not in text, address
