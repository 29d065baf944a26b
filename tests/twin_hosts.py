"""Two names of hosts that have one id, as anybody can make them: a host's id is no secret's.

The second was found in half a minute: 128 characters are eight blocks whose mixes xxh3 adds up, and
four of them, of four million drawn texts each, come to any sum (Wagner, 2002).
"""

from typing import Final

HOST: Final = "victim.example"
TWIN: Final = (
    "aaaaaaaaaaaaaaa.dwxrelbxfsqhjp63mkj3ob3jcxl3nbf5aaaaaaa."
    "aaaaaaaaa7iqj59084dm7xomqoxal18weciarffoaaaaaaaaaaaaaaa.attacker.example"
)
"""Of the same shard, too, where there are four."""
