from pathlib import Path

import pytest

from tests.documents import code_blocks
from tests.documents.code_blocks import Block

DOCUMENT = """Words.

```python
print("a", 1795276119)
undefined
```
```text
a 1795000000
builtins.NameError: name 'undefined' is
    not defined
```

```console
$ echo half 1.5 ms; false || echo no
half 20 us
no
$ pwd
...
```
"""


def test_code_and_commands_are_run_in_order_and_compared(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(DOCUMENT)
    code, echo, pwd = code_blocks.read_blocks(tmp_path / "page.md")
    outputs = code_blocks.run_blocks(tmp_path / "page.md", tmp_path)
    assert [block.line for block in (code, echo, pwd)] == [4, 14, 17]
    code_blocks.check_output(code, outputs)
    code_blocks.check_output(echo, outputs)
    assert outputs[str(pwd)].strip() == str(tmp_path)


def shows_all(expected: str, output: str) -> bool:
    return code_blocks.shows_all(Block(1, True, "", expected), output)


def test_numbers_and_line_breaks_may_differ_and_words_may_not() -> None:
    assert shows_all("v5e:1x1 28.5us 280k -1e-05\n", "v6e:2x2\n9ms   4 -0\n")
    assert shows_all("│ 3 ops: Const\n│ 1 │\n", "│ 12 ops: Const 7 │\n")
    assert shows_all("first\n...\nlast\n", "first\nmore\nof it\nlast\n")
    assert shows_all("first\n...\nlast\n...\n", "first\nlast\n")
    assert not shows_all("passed\n", "failed\n")
    assert not shows_all("passed\n", "passed\nand more\n")
    assert not shows_all("first\nlast\n", "first\n")
    assert not shows_all("1 row\n", "row\n")


def test_code_prints_no_error_that_the_document_does_not_show() -> None:
    outputs = {"line_1": "1\nbuiltins.KeyError: 'a'"}
    code_blocks.check_output(Block(1, False, "", "1\nbuiltins.KeyError: 'a'\n"), outputs)
    with pytest.raises(AssertionError):
        code_blocks.check_output(Block(1, False, "", "1\n"), outputs)
