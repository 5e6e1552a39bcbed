# The documentation site, as ./run docs builds it: pages in Markdown (MyST), the reference of C++ from Doxygen's XML, that of
# Python from the installed package. Nothing is fetched when the pages are read.
import pathlib
import re
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))

project = "onestep"
author = "the authors of onestep"
version = release = re.search(r"project\(onestep VERSION ([0-9.]+)", (here.parent / "CMakeLists.txt").read_text("utf-8"))[1]
extensions = ["myst_parser", "breathe", "sphinx.ext.autodoc", "sphinx_copybutton", "onestep_pages"]

html_theme = "furo"
html_title = "onestep"
html_static_path = ["static"]
html_css_files = ["onestep.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#005f99", "color-brand-content": "#005f99"},
    "dark_css_variables": {"color-brand-primary": "#6cb8e6", "color-brand-content": "#6cb8e6"},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
highlight_language = "none"
copybutton_exclude = ".linenos, .gp, .go"
copybutton_selector = "div:not(.highlight-output):not(.highlight-none) > div.highlight pre"

myst_enable_extensions = ["colon_fence", "deflist", "html_image"]
myst_heading_anchors = 3

breathe_projects = {"onestep": str(here.parent / "build/docs/doxygen/xml")}
breathe_default_project = "onestep"
breathe_default_members = ("members",)
breathe_show_include = False

autodoc_member_order = "bysource"
autodoc_mock_imports = ["torch", "cvxpy", "cvxpylayers"]  # need not be installed
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
default_role = "code"
python_maximum_signature_line_length = 90
cpp_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

# Doxygen has the namespace in the file of each header.
suppress_warnings = [
    "duplicate_declaration.cpp",
    "ref.python",  # onestep and onestep.jax both have a Solver: a bare name is that of onestep
]
