"""A Dockerfile as a list of stages; only as much of the language as ours uses."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Stage:
    """``FROM image AS name`` and what follows, as (instruction, rest) in order."""

    image: str
    name: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def last(self, instruction: str) -> str:
        """The rest of the last such step."""
        return [rest for word, rest in self.steps if word == instruction][-1]

    def all(self, instruction: str) -> list[str]:
        """The rest of every such step."""
        return [rest for word, rest in self.steps if word == instruction]

    def words(self, instruction: str) -> list[str]:
        """An instruction in its JSON form."""
        found = json.loads(self.last(instruction))
        assert isinstance(found, list)
        return [str(word) for word in found]


def stages(path: Path) -> list[Stage]:
    """The file's stages; AssertionError for what isn't an instruction."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE)
    text = re.sub(r"\\\n\s*", "", text)
    found: list[Stage] = []
    for line in filter(None, (line.strip() for line in text.splitlines())):
        match = re.fullmatch(r"([A-Z]+)\s+(.+)", line)
        assert match, f"no instruction: {line}"
        if match[1] == "FROM":
            image, _, name = match[2].partition(" AS ")
            found.append(Stage(image, name))
        else:
            found[-1].steps.append((match[1], match[2]))
    return found


def health_command(stage: Stage) -> list[str]:
    """What HEALTHCHECK runs."""
    found = json.loads(stage.last("HEALTHCHECK").partition("CMD ")[2])
    assert isinstance(found, list)
    return [str(word) for word in found]
