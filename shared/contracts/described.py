"""What the source says about the fields of a class: the docstrings beneath them.

Python keeps none of them, so they are read from the source again, where there is one.
"""

import ast
import inspect
import textwrap
from itertools import pairwise


def field_descriptions(kind: type) -> dict[str, str]:
    """Name → docstring, on one line, of the annotated fields of a class that have one.

    Args:
        kind: a class of a module; fields that it inherits are not among them. Without its source
            (a frozen application) the answer is empty.
    """
    try:
        source = textwrap.dedent(inspect.getsource(kind))
    except (OSError, TypeError):
        return {}
    [body] = [node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    found = {}
    for field, after in pairwise(body):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            found[field.target.id] = " ".join(str(after.value.value).split())
    return found
