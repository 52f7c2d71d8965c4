"""Makes a module small for its way to another machine, and compiles it.

From the source go docstrings and lines that are comments, from the code the columns, what is said
of types, and `typing`, where nothing else needs it. Lines, names and assertions stay as they are,
so a traceback says where it was as ever.
"""

from __future__ import annotations

import ast
import importlib.util
import marshal
from types import CodeType
from typing import Final

UNCHECKED_HASH: Final = 0b01  # PEP 552: never compared with its source
# Of a table of places, since Python 3.11 (its Objects/locations.md): the kinds of an entry that has
# a line and no columns, and of one that has none; each is for so many units of code at most.
LINE_ONLY, NO_PLACE, UNITS_MAX = 13, 15, 8


def mark() -> str:
    """Of the code that this interpreter makes and runs: another one with the same mark runs it."""
    return importlib.util.MAGIC_NUMBER.hex()


def bare(source: bytes) -> bytes:
    """The source without what explains it, every statement on its line.

    Python 3.11 makes trees in one thread at a time only: whoever calls it sees to that.
    """
    lines = source.decode("utf-8").split("\n")
    strings: set[int] = set()  # lines that begin within one
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant | ast.JoinedStr) and node.end_lineno is not None:
            strings.update(range(node.lineno, node.end_lineno))
        if isinstance(node, ast.Expr) and _is_text(node.value):
            _blank(lines, node)
    for at, line in enumerate(lines):
        if line.lstrip().startswith("#") and at not in strings:
            lines[at] = ""
    return "\n".join(lines).encode()


def _is_text(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _blank(lines: list[str], node: ast.Expr) -> None:
    """Put an empty string in place of a string that is a statement, alone on its lines."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before, after = lines[first][: node.col_offset], lines[last].encode()[node.end_col_offset :]
    if not before.strip() and not after.strip():
        lines[first : last + 1] = [before + '""', *[""] * (last - first)]


def pyc(name: str, source: bytes, *, lean: bool = False) -> bytes:
    """The contents of a .pyc for this interpreter; lean: smaller, longer in the making, and in one
    thread at a time only, as `bare`.
    """
    what = _untyped(ast.parse(source)) if lean else source
    code = compile(what, name, "exec", dont_inherit=True)
    flags = UNCHECKED_HASH.to_bytes(4, "little")
    checked = importlib.util.source_hash(source)
    body = marshal.dumps(_without_columns(code) if lean else code)
    return importlib.util.MAGIC_NUMBER + flags + checked + body


def _untyped(tree: ast.Module) -> ast.Module:
    """Without annotations, but for those of fields, and without names of `typing` that only they
    use. It is for modules whose annotations are not evaluated (PEP 563).
    """
    tree = _Untyped().visit(tree)
    fields = [node.annotation for node in ast.walk(tree) if isinstance(node, ast.AnnAssign)]
    said = {id(node) for one in fields for node in ast.walk(one)}
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name) and id(node) not in said]
    used = {node.id for node in names}
    for statement in [one for one in tree.body if isinstance(one, ast.ImportFrom)]:
        if statement.module == "typing":
            statement.names = [one for one in statement.names if (one.asname or one.name) in used]
            if not statement.names:
                tree.body.remove(statement)
    return tree


class _Untyped(ast.NodeTransformer):
    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.body = [
            one if isinstance(one, ast.AnnAssign) else self.visit(one) for one in node.body
        ]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(ast.Assign([node.target], node.value), node)


def _without_columns(code: CodeType) -> CodeType:
    inner = tuple(
        _without_columns(one) if isinstance(one, CodeType) else one for one in code.co_consts
    )
    lean = code.replace(co_consts=inner, co_linetable=_lines(code))
    return lean if _lines_of(lean) == _lines_of(code) else code.replace(co_consts=inner)


def _lines(code: CodeType) -> bytes:
    """The table of places with the lines of `code` only."""
    table, last = bytearray(), code.co_firstlineno
    for start, end, line in code.co_lines():
        units = (end - start) // 2
        while units > 0:
            part = min(units, UNITS_MAX)
            kind = NO_PLACE if line is None else LINE_ONLY
            table.append(0x80 | kind << 3 | (part - 1))
            if line is not None:
                table += _signed(line - last)
                last = line
            units -= part
    return bytes(table)


def _signed(number: int) -> bytes:
    """Six bits a byte, the lowest first, the sign in the lowest of all."""
    rest, found = (-number << 1) | 1 if number < 0 else number << 1, bytearray()
    while rest >= 0x40:
        found.append(0x40 | rest & 0x3F)
        rest >>= 6
    found.append(rest)
    return bytes(found)


def _lines_of(code: CodeType) -> list[int | None]:
    """The line of each unit of code."""
    return [place[0] for place in code.co_positions()]
