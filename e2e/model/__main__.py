"""`python -m e2e.model`: make the model folder if it is not there, print its path."""

import sys

from e2e.model.folder import ModelError, model_folder


def main() -> int:
    try:
        print(model_folder())
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
