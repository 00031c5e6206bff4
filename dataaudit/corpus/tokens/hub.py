"""tokenizer.json from a model hub, by id; every failure is one clear error."""

from __future__ import annotations

import os
from pathlib import Path

from dataaudit.errors import TokenizerError
from dataaudit.guarded import Guarded

_FILE = "tokenizer.json"
_PATIENCE_SECONDS = 10
_OFFLINE = "Give a tokenizer.json file instead, or run where the hub can be reached (HF_ENDPOINT names it)."


def download_tokenizer_json(spec: str) -> bytes:
    """Fetch tokenizer.json, and nothing else, of ``org/name`` or ``org/name@revision``.

    Files that the hub's own client fetched before are taken from its cache, so a second build works offline.

    Raises:
        TokenizerError: The hub cannot be reached, or has no such file for this user.
    """
    import huggingface_hub
    from huggingface_hub import errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    repo, _, revision = spec.partition("@")
    endpoint = os.environ.get("HF_ENDPOINT") or huggingface_hub.constants.ENDPOINT
    disable_progress_bars()
    found, hint = "", _OFFLINE
    with Guarded() as call:
        try:
            path = huggingface_hub.hf_hub_download(
                repo,
                _FILE,
                revision=revision or None,
                endpoint=endpoint,
                cache_dir=os.environ.get("HF_HUB_CACHE"),
                local_files_only=not _answers(endpoint),
            )
            return Path(path).read_bytes()
        except errors.GatedRepoError:
            found, hint = "access to it must be asked for", "Accept its terms on the hub and set HF_TOKEN."
        except errors.RepositoryNotFoundError:
            found = "the hub knows no such model, or it is private"
            hint = "Check the spelling; for a private model set HF_TOKEN; a local file needs its path to exist."
        except errors.RevisionNotFoundError:
            found, hint = f"it has no revision {revision!r}", "Check the part after @: a branch, tag or commit."
        except errors.RemoteEntryNotFoundError:
            found = f"it has no {_FILE}"
            hint = "Fetch its .model or .tiktoken file yourself and give that file."
        except errors.LocalEntryNotFoundError:
            found = "the hub cannot be reached and no earlier copy is in its cache"
    if call.error is not None:
        found = f"the hub did not answer ({call.kind})"
    raise TokenizerError(f"tokenizer {spec}: expected {_FILE} of this model on the hub, but {found}", hint)


def _answers(endpoint: str) -> bool:
    """Tell within seconds whether the hub can be reached; its client would retry for half a minute."""
    import huggingface_hub

    with Guarded() as call:
        huggingface_hub.get_session().head(endpoint, timeout=_PATIENCE_SECONDS)
    return call.error is None
