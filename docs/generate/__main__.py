"""Rewrite the generated blocks of docs/*.md."""

from docs.generate.documents import write_documents

if __name__ == "__main__":
    write_documents()
