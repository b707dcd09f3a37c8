"""What the documents say works: every code block of the README and the site is run, in order, as a reader would."""

import contextlib
import re
from pathlib import Path

import psutil
import pytest

from tests.docs.pages import DATA, ROOT, RUN, Block, Reader, blocks_of, compare, lives, pages
from tests.programs import need

BLOCKS = {page: blocks_of(page) for page in pages()}
NOT_RUN = [block for blocks in BLOCKS.values() for block in blocks if block.kind == "not run"]
#: Blocks that cannot run in a test are few, or the documents are not tested.
MOST_NOT_RUN = 20
#: Programs of others that pages start.
OF_OTHERS = {"curl", "jq"}


def runnable(slow: bool) -> list[object]:
    found: list[object] = []
    for page, blocks in BLOCKS.items():
        kinds = {block.kind for block in blocks if block.language in RUN and block.kind != "not run"}
        if kinds and ("slow" in kinds or not slow):
            found.append(pytest.param(page, id=str(page.relative_to(ROOT))))
    return found


def follow(page: Path, folder: Path, *, slow: bool) -> None:
    words = {
        word for block in BLOCKS[page] if block.language in RUN | {"before"} for word in re.findall(r"\w+", block.body)
    }
    need(*sorted(words & OF_OTHERS))
    with Reader(folder) as reader:
        for block in BLOCKS[page]:
            if block.kind != "not run" and (slow or block.kind != "slow"):
                reader.follow(block)


@pytest.mark.parametrize("page", runnable(slow=False))
def test_a_page_does_what_it_says(page, tmp_path):
    follow(page, tmp_path, slow=False)


@pytest.mark.long
@pytest.mark.parametrize("page", runnable(slow=True))
def test_a_page_with_its_long_blocks(page, tmp_path):
    follow(page, tmp_path, slow=True)


@pytest.mark.parametrize("block", [block for blocks in BLOCKS.values() for block in blocks], ids=str)
def test_every_block_is_run_or_data_or_says_why_not(block):
    known = block.language in RUN | DATA | {"before"} or block.kind == "not run"
    assert known, f"{block}: a block of {block.language or 'no language'} is not run and says not why"
    if block.kind == "not run":
        assert len(block.detail.split()) >= 4, f"{block}: the reason is too short"
    if block.kind == "background":
        assert "=" in block.detail


def test_few_blocks_are_not_run():
    assert len(NOT_RUN) <= MOST_NOT_RUN, "\n".join(f"{block}: {block.detail}" for block in NOT_RUN)


def make_page(folder: Path, text: str) -> list[Block]:
    page = ROOT / "docs" / "made-up.md"
    (folder / "page.md").write_text(text)
    return [Block(page, b.line, b.language, b.body, b.kind, b.detail) for b in blocks_of(folder / "page.md")]


def follow_all(reader: Reader, blocks: list[Block]) -> None:
    for block in blocks:
        reader.follow(block)


PAGE = """
<!-- test: before, word=before -->
```console
$ echo one; seq 3
one
1
...
$ echo took 4.5 s, \\
> 3 rows/s, $word
took 1.2e-05 s, 12,000 rows/s, b...e
$ ls nowhere
apsp: ...
```

- in a list

  ```sh
  word=after
  export WORD=$word
  ```

```python
import os
print(os.environ["WORD"], os.path.exists("examples/README.md"))
```
<!-- test: output -->
```text
after True
```
"""


def test_a_page_that_is_right(tmp_path):
    blocks = make_page(tmp_path, PAGE.replace("$ ls nowhere\napsp: ...\n", ""))
    assert [block.language for block in blocks] == ["before", "console", "sh", "python", "text"]
    with Reader(tmp_path) as reader:
        follow_all(reader, blocks)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("one\n1", "two\n1"),
        ("1\n...", "1\n2"),
        ("after True", "before True"),
        ("b...e", "b...f"),
        ("12,000 rows/s", "12,000 columns"),
        ("echo one", "exit_with 3"),
        ("word=after", "false; word=after"),
        ("import os", "import os, nothing_of_the_kind"),
        ("$ ls nowhere\napsp: ...\n", "$ ls nowhere\n"),
        ("$ ls nowhere\napsp: ...\n", "$ ls nowhere\napsp: no such file\n"),
    ],
)
def test_a_page_that_is_wrong(tmp_path, right, wrong):
    blocks = make_page(tmp_path, PAGE.replace(right, wrong))
    with Reader(tmp_path) as reader, pytest.raises((AssertionError, ModuleNotFoundError)):
        follow_all(reader, blocks)


R_PAGE = "```r\ncat(1)\n```\n<!-- test: output -->\n```text\nfrom R: cat(1)\n```\n"


@pytest.mark.parametrize("wrong", [False, True])
def test_blocks_in_r_are_compared_where_r_is_installed(tmp_path, monkeypatch, wrong):
    monkeypatch.delenv("APSP_REQUIRE_R", raising=False)
    blocks = make_page(tmp_path, R_PAGE.replace("from R", "of R") if wrong else R_PAGE)
    with Reader(tmp_path) as reader:
        monkeypatch.setattr("shutil.which", lambda _name: None)
        follow_all(reader, blocks)
        program = tmp_path / "bin" / "Rscript"
        program.write_text('#!/bin/sh\necho "from R: $(cat "$2")"\n')
        program.chmod(0o755)
        monkeypatch.setattr("shutil.which", lambda _name: str(program))
        with pytest.raises(AssertionError, match="of R") if wrong else contextlib.nullcontext():
            follow_all(reader, blocks)


def test_a_program_that_is_required_is_not_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda _name: None)
    monkeypatch.setattr("tests.docs.pages.QGIS", tmp_path / "none")
    monkeypatch.setenv("APSP_REQUIRE_R", "1")
    monkeypatch.setenv("APSP_REQUIRE_QGIS", "1")
    blocks = make_page(tmp_path, R_PAGE + "<!-- test: qgis -->\n```python\nimport qgis\n```\n")
    with Reader(tmp_path) as reader:
        for block in (blocks[0], blocks[-1]):
            with pytest.raises(AssertionError, match="not installed"):
                reader.follow(block)


def test_numbers_that_do_not_vary_are_compared():
    block = Block(ROOT / "README.md", 1, "console", "")
    compare(block, ["1,068 m apart"], ["1,068 m apart"])
    with pytest.raises(AssertionError, match="1,069"):
        compare(block, ["1,068 m apart"], ["1,069 m apart"])


@pytest.mark.parametrize(("line", "other"), [('[["a",4],3.5]', '[["a",4.0],3.5]'), ('{"a":[10.0,1]}', '{"a":[10,1]}')])
def test_whole_fractions_of_json_may_have_a_zero(line, other):
    block = Block(ROOT / "README.md", 1, "console", "")
    compare(block, [line], [other])
    with pytest.raises(AssertionError):
        compare(block, [line], [other.replace("1", "2").replace("4", "5")])


def test_what_runs_in_the_background_ends_with_the_page(tmp_path):
    text = "<!-- test: background, WORD=up (\\w+) -->\n```sh\necho $BASHPID > pid; echo up now; exec sleep 600\n```\n"
    text += "```sh\ntest $WORD = now\n```\n"
    with Reader(tmp_path) as reader:
        follow_all(reader, make_page(tmp_path, text))
        process = psutil.Process(int((reader.folder / "pid").read_text()))
        assert lives(process)
    assert not lives(process)
