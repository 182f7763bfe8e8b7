"""The demo, which is no failure where its picture cannot be written."""

from implicit_delta import demo


def run_demo(picture: str | None) -> None:
    """Print the demo, and write its picture where a name is given."""
    try:
        demo.main(picture)
    except OSError as error:  # a folder that cannot be written to, not a failure of the package
        print(f"The picture was not written: {error}. Another place: --picture FILE")
