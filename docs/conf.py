"""Configuration of the site: ``make docs``, or ``-D plot_gallery=0`` to leave the examples out."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "docs" / "_ext")]

os.environ["TQDM_DISABLE"] = "1"  # no bars in the output of the gallery
import implicit_delta

project = "implicit-delta"
author = "implicit-delta developers"
copyright = f"{author}, BSD-3-Clause"
version = release = implicit_delta.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "messages",
    "records",
]
exclude_patterns = ["_ext"]
templates_path = ["_templates"]
nitpicky = True
# Single backticks in docstrings mark code, of this library or not; explicit roles are checked.
default_role = "py:obj"
# Methods in docstrings go by the short name of their class, which has another module there.
nitpick_ignore_regex = [("py:obj", ".*"), ("py:meth", r"Estimate\..*")]

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False

# Written by hand and read from here, so that a build needs no network and always has its links.
OTHERS = {
    "matplotlib": "https://matplotlib.org/stable/",
    "numpy": "https://numpy.org/doc/stable/",
    "pandas": "https://pandas.pydata.org/docs/",
    "python": "https://docs.python.org/3/",
    "scipy": "https://docs.scipy.org/doc/scipy/",
    "sklearn": "https://scikit-learn.org/stable/",
    "statsmodels": "https://www.statsmodels.org/stable/",
    "torch": "https://docs.pytorch.org/docs/stable/",
}
intersphinx_mapping = {name: (url, f"inventories/{name}.txt") for name, url in OTHERS.items()}

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "copyfile_regex": r"index\.rst",  # sections by question, written by hand
    "backreferences_dir": "api/generated/examples",
    "doc_module": ("implicit_delta",),
    "reference_url": {"implicit_delta": None},
    "remove_config_comments": True,
    "show_memory": False,
    "write_computation_times": False,  # its page fetches scripts from elsewhere
    "show_signature": False,
    "download_all_examples": False,
    "only_warn_on_example_error": False,
    "abort_on_example_error": True,
}

html_theme = "pydata_sphinx_theme"
html_title = "implicit-delta"
html_favicon = "_static/icon.svg"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = ["llms.txt"]
html_show_sourcelink = False
html_sidebars = {"index": [], "api/index": []}
html_theme_options = {
    "logo": {
        "text": "implicit-delta",
        "image_light": "_static/icon.svg",
        "image_dark": "_static/icon.svg",
    },
    "github_url": "https://github.com/implicit-delta/implicit-delta",
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
