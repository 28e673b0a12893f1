"""Which id a tokenizer gives each token, from its tokenizer.json alone."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from eagle3_backend.drafter.folder import Folder
from eagle3_backend.drafter.jsonfile import read_object

FILE = "tokenizer.json"


def token_ids(folder: Folder) -> Optional[Dict[str, int]]:
    """Token to id, added tokens included; None without a tokenizer.json that says so."""
    if FILE not in folder.names():
        return None
    content, _ = read_object(folder, FILE)
    return None if content is None else ids_of(content)


def ids_of(content: Mapping[str, Any]) -> Optional[Dict[str, int]]:
    """`token_ids` of a parsed file: {token: id} for BPE and WordPiece, [[token, score], ...] by id for Unigram."""
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        ids = dict(vocabulary)
    elif isinstance(vocabulary, list):
        ids = {str(entry[0]): index for index, entry in enumerate(vocabulary) if isinstance(entry, list) and entry}
    else:
        return None
    for added in content.get("added_tokens") or ():
        if isinstance(added, Mapping) and isinstance(added.get("content"), str):
            ids[added["content"]] = added.get("id")
    return ids
