"""Text that is not YAML, or no task file: says what it is, in place of what a scanner saw."""

from __future__ import annotations

import re
from typing import Any, Final, NoReturn

from argosy.spec.source.notes import Mark, Notes
from argosy.spec.source.words import nearest_word

TEMPLATE_HINT: Final = "render the template first, and give Argosy the file that comes out"
REPEATED: Final = "spec/duplicate-key"
_JINJA = re.compile(r"\{\{|\{%|\{#")
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_YAML_LINE = re.compile(
    r"""^(---|\.\.\.|%YAML|%TAG|[-?] |-$|[\[{!&*]|("[^"]*"|'[^']*'|[^\s:]+)\s*:(\s|$))"""
)
_SHELL = re.compile(
    r"^(#!|\$ |(sudo|sky|argosy|python3?|pip|pip3|uv|bash|sh|source|export|cd|echo|git|docker"
    r"|kubectl|conda|curl|cat|make|set|wget|torchrun|srun|sbatch)(\s|$)|[A-Za-z_][A-Za-z0-9_]*=\S*$|\./)"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ufffe\uffff\ud800-\udfff]")


def is_template(text: str) -> bool:
    """Whether `text` holds a placeholder that a template engine should have filled in."""
    return _JINJA.search(text) is not None


def decoded(text: bytes, notes: Notes) -> str:
    """The bytes as UTF-8. Raises InputErrors for another encoding and for binary files."""
    if text.startswith((b"\xff\xfe", b"\xfe\xff")):
        notes.error(
            Mark(1, 1), "encoding", "the file is UTF-16; task files are UTF-8",
            f"`iconv -f UTF-16 -t UTF-8 {notes.file} > new.yaml` converts it",
        )  # fmt: skip
        notes.raise_errors()
    head = text[:4096]
    if b"\0" in head or head.startswith((b"\x1f\x8b", b"PK\x03\x04", b"\x7fELF")):
        notes.error(
            Mark(0, 0), "binary", "the file is binary, not YAML text",
            "give the YAML file that describes the tasks",
        )  # fmt: skip
        notes.raise_errors()
    try:
        return text.decode("utf-8")
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        column = error.start - text.rfind(b"\n", 0, error.start)
        notes.error(
            Mark(line, column), "encoding",
            f"byte 0x{text[error.start]:02x} is not UTF-8",
            "save the file as UTF-8; for a file in Latin-1: `iconv -f LATIN1 -t UTF-8`",
        )  # fmt: skip
        notes.raise_errors()
        raise


def check_characters(text: str, notes: Notes) -> None:
    """Note control characters, which YAML forbids."""
    found = _CONTROL.search(text)
    if found is None:
        return
    before = text[: found.start()]
    line = len(re.findall("\r\n|[\r\n\x85\u2028\u2029]", before)) + 1
    column = len(before) - max(before.rfind(c) for c in "\n\r\x85\u2028\u2029")
    what = "the file is binary, not YAML text" if found.group() == "\0" else (
        f"the control character U+{ord(found.group()):04X} is not allowed in YAML"
    )  # fmt: skip
    notes.error(
        Mark(line, column), "binary" if found.group() == "\0" else "control-character", what,
        'remove it; inside double quotes it can be written as "\\x1b"',
    )  # fmt: skip


def check_lines(notes: Notes, most: int) -> None:
    """Note lines longer than `most` bytes."""
    for number, line in enumerate(notes.lines, 1):
        if len(line) * 4 > most and len(line.encode("utf-8", "replace")) > most:
            notes.error(
                Mark(number, 1), "line-too-long",
                f"line {number} has {len(line):,} characters; at most {most:,} bytes are read",
                "put the data into a file of its own and name it in `file_mounts`",
            )  # fmt: skip


def explain(error: Any, notes: Notes, lines_before: int = 0) -> None:
    """Note what is wrong where the scanner gave up (`error` is a yaml.YAMLError).

    It read a document that begins below so many lines of the file.
    """
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    at = _place(mark, lines_before) if mark else Mark(lines_before + 1, 1)
    at = Mark(min(at.line, len(notes.lines)), at.column)
    problem = str(getattr(error, "problem", None) or error)
    context = str(getattr(error, "context", None) or "")
    start = getattr(error, "context_mark", None)
    opened = _place(start, lines_before) if start else None
    if "simple key" in context and opened is not None:  # the line itself, not the end of the file
        at = opened
    if _template(at, notes) or _tab(at, problem, notes) or (not lines_before and _shell(notes)):
        return
    if _heredoc(at, notes, lines_before) or _quote(at, context, opened, notes):
        return
    _plain(at, problem, context, notes)


def _place(mark: Any, lines_before: int) -> Mark:
    return Mark(lines_before + mark.line + 1, mark.column + 1)


def _template(at: Mark, notes: Notes) -> bool:
    for number in range(max(at.line - 2, 0), min(at.line, len(notes.lines))):
        found = _JINJA.search(notes.lines[number])
        if found:
            strange_key(Mark(number + 1, found.start() + 1), True, notes)
            return True
    return False


def _tab(at: Mark, problem: str, notes: Notes) -> bool:
    for number in (at.line, at.line - 1, at.line + 1):
        line = notes.lines[number - 1] if 0 < number <= len(notes.lines) else ""
        indent = line[: len(line) - len(line.lstrip(" \t"))]
        if "\t" in indent or ("'\\t'" in problem and "\t" in line and number == at.line):
            notes.error(
                Mark(number, line.index("\t") + 1), "tab",
                "a tab stands where YAML wants spaces",
                f"replace tabs by spaces: `sed -i 's/\\t/  /g' {notes.file}`",
            )  # fmt: skip
            return True
    return False


def _shell(notes: Notes) -> bool:
    """A command, or a sentence, above the first key."""
    for number, line in enumerate(notes.lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if _YAML_LINE.match(line.lstrip()) or number == len(notes.lines):
            return False
        what = "looks like a shell command" if _SHELL.match(line.strip()) else "is not YAML"
        notes.error(
            Mark(number, 1), "stray-text", f"the first line {what}; a task file starts with a key",
            "remove the line, or put `#` before it",
        )  # fmt: skip
        return True
    return False


def _heredoc(at: Mark, notes: Notes, lines_before: int) -> bool:
    """The body of a heredoc that is less indented than its block, and so ended it."""
    for number in range(at.line - 1, max(at.line - 200, lines_before), -1):
        line = notes.lines[number - 1]
        found = _HEREDOC.search(line)
        if not found:
            continue
        indent = len(line) - len(line.lstrip(" "))
        for body in range(number + 1, at.line + 1):
            text = notes.lines[body - 1]
            if text.strip() and len(text) - len(text.lstrip(" ")) < indent:
                notes.error(
                    Mark(body, 1), "heredoc",
                    f"this line is less indented than the script, so YAML ended the script here,"
                    f" inside the heredoc of line {number}",
                    f"indent the body and its `{found.group(2)}` like the rest of the script;"
                    " YAML takes the indentation away again",
                )  # fmt: skip
                return True
            if text.strip() == found.group(2):
                return False
    return False


def _quote(at: Mark, context: str, opened: Mark | None, notes: Notes) -> bool:
    if "quoted scalar" not in context or opened is None:
        return False
    notes.error(
        opened, "open-quote",
        "this quoted text is not closed, or has something YAML cannot read before its end",
        "close the quote on the same line; inside double quotes `\\` starts an escape,"
        " so use single quotes for paths and regular expressions",
    )  # fmt: skip
    return True


_SCANNER: Final = (
    ("mapping values are not allowed", "a second `:` stands where a value ends",
     "put the value in quotes, or look at the indentation of this line and the one above"),
    ("could not find expected ':'", "this line has no `:`, so YAML does not know what it is",
     "indent it like the text it belongs to, add the `:`, or put `#` before it"),
    ("did not find expected key", "the indentation here does not fit the lines above",
     "give keys of one level the same number of spaces"),
    ("did not find expected '-' indicator", "a list is followed by something at the same level",
     "indent this line, or begin it with `- `"),
    ("block sequence entries are not allowed", "a list item cannot stand here",
     "put the list below its key, one item a line"),
    ("did not find expected ',' or", "a `{` or `[` is not closed",
     "close it, or put values with special characters in quotes"),
    ("did not find expected node content", "`{`, `[` or `,` is followed by something unexpected",
     "put the value in quotes"),
    ("did not find expected <document start>", "text follows the end of the document",
     "remove it, put `#` before it, or put `---` above a new document"),
    ("cannot start any token", "a value begins with a character that YAML keeps for itself",
     "put the value in quotes"),
    ("undefined alias", "an alias (`*name`) has no anchor (`&name`) in this document",
     "define the anchor in the same document; a value that begins with `*` needs quotes"),
)  # fmt: skip


def _plain(at: Mark, problem: str, context: str, notes: Notes) -> None:
    for words, text, hint in _SCANNER:
        if words in problem:
            notes.error(at, "not-yaml", text, hint)
            return
    detail = " ".join(part for part in (context, problem) if part).strip()
    notes.error(
        at, "not-yaml", f"this is not YAML: {detail[:200]}",
        "put values with special characters in quotes, and check the indentation",
    )  # fmt: skip


def strange_key(mark: Mark, braces: bool, notes: Notes) -> None:
    """Note a key that is a map or a list; braces are what templates leave behind."""
    if braces:
        notes.error(
            mark, "template", "this is a template: a placeholder was not filled in", TEMPLATE_HINT
        )
    else:
        notes.error(mark, "strange-key", "a list cannot be a key", "write the key as text")


def repeated(mark: Mark, key: str, first: Mark, notes: Notes) -> None:
    """Note a key that was given twice."""
    notes.error(
        mark, REPEATED.removeprefix("spec/"),
        f"`{key[:80]}` is given twice: in line {first.line} and in line {mark.line}",
        "keep one of the two; YAML would silently drop the first",
    )  # fmt: skip


def bad_merge(mark: Mark, notes: Notes) -> None:
    """Note a `<<:` whose value is no map."""
    notes.error(mark, "merge", "`<<` merges maps, and this is none", "write `<<: *name-of-a-map`")


def strange_tag(mark: Mark, tag: str, notes: Notes) -> None:
    """Note a YAML tag that means nothing here."""
    notes.error(
        mark, "strange-tag", f"`{tag[:80]}` is no kind of value that fits here",
        "remove the `!`, or put the value in quotes",
    )  # fmt: skip


def unknown_alias(mark: Mark, name: str, known: list[str], notes: Notes) -> None:
    """Note an alias without an anchor; anchors do not cross documents."""
    near = nearest_word(name, known)
    notes.error(
        mark, "alias", f"`*{name[:80]}` has no anchor `&{name[:80]}` in this document",
        f"did you mean `*{near}`?" if near
        else "repeat the anchor in this document; a value that begins with `*` needs quotes",
    )  # fmt: skip


def bomb(mark: Mark, most: int, notes: Notes) -> NoReturn:
    """Stop at aliases that write out to more than `most` values."""
    notes.error(
        mark, "alias-expansion", f"aliases expand this file to more than {most:,} values",
        "write the values out, or use fewer aliases",
    )  # fmt: skip
    _stop(notes)


def too_complex(mark: Mark, depth: int, values: int, notes: Notes) -> NoReturn:
    """Stop at a file nested too deep, or with too many values."""
    notes.error(
        mark, "too-complex",
        f"a file may nest {depth} levels and hold {values:,} values, and this one has more",
        "put data into a file of its own and name it in `file_mounts`",
    )  # fmt: skip
    _stop(notes)


def too_many(mark: Mark, most: int, notes: Notes) -> None:
    """Note that there are more tasks than a group may have, and nothing else."""
    notes.errors.clear()
    notes.error(
        mark, "too-many-tasks", f"a group has at most {most:,} tasks",
        "use `num_nodes` for members that run the same program, or several groups",
    )  # fmt: skip
    notes.raise_errors()


def _stop(notes: Notes) -> NoReturn:
    notes.raise_errors()
    raise AssertionError("an error was noted just before")
