"""How the documentation is made: its links, its generated pages, its pictures.

The pages themselves are Markdown under `docs`, and READMEs beside the code they are about;
`make docs` builds one site of them.
"""
