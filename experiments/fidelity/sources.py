"""Code of modules as a value: when it changes, what was made by it is made again."""

import ast
import inspect


def source(*modules):
    """Syntax trees, in which comments and layout do not count."""
    return [ast.dump(ast.parse(inspect.getsource(module))) for module in modules]
