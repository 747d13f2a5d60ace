"""A synthetic twin of federated Shakespeare: 715 roles in 37 plays that never were, each with its own speech.

It needs no download and keeps what makes the real set federated: as many roles and speeches, most of them
few and some with hundreds; one language, with a role's own favourite words, turns of phrase, punctuation
and line breaks; names that only the roles of one play call. What a role says is put together from the word
lists and clauses below, so that a model can learn spelling, words, grammar and, last, the role.

All speeches of a role are drawn by the same few array operations: clauses, the parts of speech in them, a
word for each, and then how it is written (first in the speech, in a sentence, in a line, or inside).
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.store.columns import Ragged
from fedopt.errors import UserError, unknown

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

CLIENTS = {"train": 715, "test": 715}
EXAMPLES = {"train": 16_068, "test": 2_356}

PLAYS, NAMES = 37, 7  # names in each play
TASTE, FASHION = 0.9, 0.7  # how far a role's, and a play's, liking for a word departs: deviations of its log

NOUNS = (
    "heart hand night day king crown love lord eye time world tongue sword death blood house hour "
    "word brother father queen soul friend grace grief fortune honour name sun moon winter summer storm sea "
    "ship shore wind star fire candle shadow dream sleep morning field garden rose thorn flower root "
    "river bridge gate wall tower castle chamber bed table cup bottle bread feast song drum trumpet banner "
    "horse hound hawk raven serpent lamb lion beggar knight prince servant soldier captain merchant "
    "lawyer priest fool widow maiden sister daughter son mother neighbour stranger enemy letter "
    "ring purse jewel coin debt promise oath secret rumour sorrow pleasure courage anger envy patience fault "
    "reason virtue vow wound tear breath finger cheek brow bosom face voice mouth ear bone grave stone "
    "mountain forest valley kingdom market street door window mirror cloak glove dagger arrow shield counsel"
).split()
VERBS = (
    "love follow call fear want look turn pray serve hope kill mourn command answer trust obey praise "
    "wound curse hate guard watch join pardon banish summon scorn honour borrow remember attend offend "
    "believe entreat confess betray comfort deliver crown bless mock wander return perish doubt haunt "
    "flatter tempt reward punish suffer labour challenge conquer yield gather scatter whisper thunder"
).split()
ADJECTIVES = (
    "good sweet poor great noble gentle fair true old young foul cruel bloody dear honest golden silent "
    "bitter heavy proud bold humble secret royal mortal ancient idle wicked merry weary hollow bright dark "
    "cold sharp tender faithful jealous lawful guilty blessed wretched valiant worthy simple strange drunken "
    "wanton envious hungry patient gracious dreadful swift pale crooked common"
).split()
ADVERBS = (
    "never well ever still now soon yet once again ill truly gladly boldly softly straight alone".split()
)
PREPOSITIONS = "of in to with for from by upon against before beneath within beyond without near".split()
DETERMINERS = "the my this that his thy your her our every no some their another such".split()
PLURALS = "the my these those our his thy your all their both many her".split()
SUBJECTS = "I he she we they it who".split()
OBJECTS = "me him her us them thee you it".split()
MODALS = "will shall must may would should can might did could".split()
SECOND = [
    "thou shalt",
    "thou wilt",
    "thou must",
    "thou mayst",
    "you shall",
    "you will",
    "you must",
    "you may",
]
CALLS = "O come nay well alas why fie hark peace marry ay farewell indeed away".split()
TITLES = [
    "my lord",
    "good sir",
    "madam",
    "sweet lady",
    "my liege",
    "your grace",
    "dear cousin",
    "gentle friend",
]
ASKING = "what why how where when wherefore whence".split()
LINKS = "and but for as if when that since though yet".split()
MARKS = [".", "!", ";", ":", ",", ", and", ", but", ", for", "--"]
DIRECTIONS = ["[Aside]", "[Reads]", "[Sings]", "[Kneels]"]
FAMILIAR, FORMAL = {"thou", "thee", "thy"}, {"you", "your"}

# Parts of speech: n noun, N nouns, v verb, w verb with -eth or -s, g with -ing, e with -ed, a adjective,
# r adverb, p preposition, d determiner, D of several, s subject, u second person, o object, m modal,
# l link, c call, t title, k name, q question word, B stage direction. A clause ends with a mark (.) or a
# question mark.
CLAUSES = """
s m v d n. | d n w d a n. | s m r v o. | d a n p d n m v o. | v d n , t. | c , k , u v o. | q m s v d a n?
p d n p d n s m v. | d N p D a N m v. | u v d n l s v o. | l d n w , d n w r. | k m v d n p d n. | q w d n?
s m v o p d a n. | c , t , d n w. | v o , v o. | g p d n , s m v. | d n l d n m r v. | a l a p d n. | k , v o.
q m d n v o? | s e d n p d n. | d n e p D N. | l s m v o , u v. | N l N p d n. | t , s m v d n. | c , c , k.
m s v d a n? | m d n v , t? | D a N v p d n. | s r e o. | e l e , d n m v. | r m d a n v d n.
"""
CUE = "B"


@cache
def sizes(split: str) -> Ints:
    """Speeches of every role, int64 (715,): half have ten or fewer, and the sum is the real total."""
    if split not in CLIENTS:
        raise unknown("split", split, CLIENTS)
    wish = rng.generator("synthetic_shakespeare", "sizes").lognormal(0.0, 1.4, CLIENTS[split])
    ends = np.cumsum(wish)
    # One speech each; the others are cut where the running sum passes whole numbers, so none is lost.
    ends = np.floor(ends / ends[-1] * (EXAMPLES[split] - CLIENTS[split]))
    counts: Ints = 1 + np.diff(ends, prepend=0.0).astype(np.int64)
    counts.setflags(write=False)  # every caller is given the same cached array
    return counts


def ids(split: str) -> list[str]:
    """The roles' names in sorted order, the same in both splits; the position is the role's number."""
    if split not in CLIENTS:
        raise unknown("split", split, CLIENTS)
    return [f"role{number:03d}" for number in range(CLIENTS[split])]


def examples(split: str, client: int) -> dict[str, Ragged]:
    """The `snippets` (speeches) of one role, ragged uint8 in ASCII, a function of the arguments alone."""
    counts, client = sizes(split), int(client)  # a NumPy number would be another key
    if not 0 <= client < len(counts):
        raise UserError(f"there is no role {client}; roles are numbered 0 to {len(counts) - 1}")
    role = _role(client)
    draw = rng.generator("synthetic_shakespeare", split, client)
    words, first = _words(role, int(counts[client]), draw)
    return {"snippets": _write(role, words, first)}


class Language(NamedTuple):
    """What all roles share. A word is known by its position in `words`."""

    words: list[str]
    lists: dict[str, Ints]  # the words of each part of speech
    names: Ints  # (PLAYS, NAMES) as called, and
    cues: Ints  # (PLAYS, NAMES + 4) as stage directions
    parts: npt.NDArray[np.str_]  # parts of speech of all clauses, one after the other
    starts: Ints  # (clauses + 1,) where each clause begins in `parts`; the last clause is the cue
    spelled: list[bytes]  # every word in every style
    length: Ints  # of those


# How a word is written: after a space, first in a sentence, in a line of verse or of prose, in the speech.
STYLES = INSIDE, IN_SENTENCE, IN_VERSE, IN_PROSE, IN_SPEECH = range(5)


@cache
def _language() -> Language:
    """Words, clauses and spellings as tables."""
    names = _names()
    lists = {
        **{"n": NOUNS, "a": ADJECTIVES, "r": ADVERBS, "p": PREPOSITIONS, "d": DETERMINERS, "D": PLURALS},
        **{
            "v": VERBS,
            "g": [_joined(verb, "ing") for verb in VERBS],
            "e": [_joined(verb, "ed") for verb in VERBS],
        },
        **{"w": [_joined(verb, "eth") for verb in VERBS] + [_with_s(verb) for verb in VERBS]},
        **{"N": [_with_s(noun) for noun in NOUNS], "s": SUBJECTS, "u": SECOND, "o": OBJECTS, "m": MODALS},
        **{"l": LINKS, "c": CALLS, "t": TITLES, "q": ASKING, "k": names},
        **{"B": DIRECTIONS + [f"[To {name.upper()}]" for name in names], ",": [","], "?": ["?"], ".": MARKS},
    }
    words = [word for part in lists.values() for word in part]
    ends = np.cumsum([len(part) for part in lists.values()])
    places = {k: np.arange(end - len(lists[k]), end) for k, end in zip(lists, ends, strict=True)}
    called, cues = places["k"].reshape(PLAYS, NAMES), places["B"][len(DIRECTIONS) :].reshape(PLAYS, NAMES)
    clauses = [clause.replace(" ", "") for clause in CLAUSES.strip().replace("\n", "|").split("|")] + [CUE]
    spelled = [_spell(word, style).encode("ascii") for style in STYLES for word in words]
    return Language(
        words=words,
        lists=places,
        names=called,
        cues=np.concatenate([np.tile(places["B"][: len(DIRECTIONS)], (PLAYS, 1)), cues], axis=1),
        parts=np.array(list("".join(clauses))),
        starts=np.cumsum([0] + [len(clause) for clause in clauses]),
        spelled=spelled,
        length=np.array([len(text) for text in spelled]),
    )


def _names() -> list[str]:
    """Made-up names, NAMES for each play."""
    draw = rng.generator("synthetic_shakespeare", "names")
    heads = "Bran Cor Del Fen Gor Hal Ist Lor Mar Nor Ost Per Quin Ros Sil Tor Ul Ver Wil Yor".split()
    middles = "a e i o an el in or".split()
    tails = "dro lia mond nus phe ric sa thel tio vane wyn".split()
    every = [head + middle + tail for head in heads for middle in middles for tail in tails]
    return [every[i] for i in draw.permutation(len(every))[: PLAYS * NAMES]]


def _joined(verb: str, ending: str) -> str:
    return verb.removesuffix("e") + ending


def _with_s(word: str) -> str:
    """The plural of a noun or the third person of a verb.

    >>> _with_s("enemy"), _with_s("day"), _with_s("bless"), _with_s("bone")
    ('enemies', 'days', 'blesses', 'bones')
    """
    if word.endswith("y") and word[-2] not in "aeou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x")) else "s")


def _spell(word: str, style: int) -> str:
    if word in MARKS or word in {",", "?"}:
        return word
    capital = word if style in (INSIDE, IN_PROSE) else word[0].upper() + word[1:]
    return {IN_VERSE: "\n", IN_PROSE: "\n", IN_SPEECH: ""}.get(style, " ") + capital


class Role(NamedTuple):
    """What stays the same in everything that a role says."""

    words: dict[str, Ints]  # those it may use for each part of speech
    taste: dict[str, Floats]  # and their cumulative shares
    clause: Floats  # cumulative shares of the clauses
    breath: float  # clauses in a usual speech
    cue: float  # share of speeches with a stage direction
    verse: bool  # every line begins with a capital
    width: int  # letters in a line


def _role(client: int) -> Role:
    """The speech of a role, from its number alone, so that train and test share it."""
    language = _language()
    play = client * PLAYS // CLIENTS["train"]
    draw = rng.generator("synthetic_shakespeare", "role", client)
    fashion = rng.generator("synthetic_shakespeare", "play", play).standard_normal(len(language.words))
    liking = TASTE * draw.standard_normal(len(language.words)) + FASHION * fashion
    familiar, archaic = 1.5 * draw.standard_normal(2)
    liking += familiar * _leaning()
    liking[language.lists["w"][: len(VERBS)]] += archaic
    words = {**language.lists, "k": language.names[play], "B": language.cues[play]}
    verse = bool(draw.random() < 0.65)
    return Role(
        words=words,
        taste={
            part: _shares(np.exp(liking[own]) / (np.arange(len(own)) + 2.0)) for part, own in words.items()
        },
        clause=_shares(np.exp(draw.standard_normal(len(language.starts) - 2))),
        breath=float(draw.lognormal(0.9, 0.4)),
        cue=float(draw.uniform(0.0, 0.12)),
        verse=verse,
        width=int(draw.integers(38, 46) if verse else draw.integers(60, 76)),
    )


@cache
def _leaning() -> Floats:
    """For each word 1 if it says thou, -1 if it says you, and 0 if neither."""
    said = [set(word.split()) for word in _language().words]
    return np.array([1.0 if word & FAMILIAR else -1.0 if word & FORMAL else 0.0 for word in said])


def _words(role: Role, n: int, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """The words of `n` speeches, one after the other, and where each speech begins, (n,)."""
    language = _language()
    clauses = np.ceil(draw.lognormal(np.log(role.breath), 1.0, n)).clip(1, 80).astype(np.int64)
    cue = draw.random(n) < role.cue
    ends = np.cumsum(clauses + cue)
    clause = _pick(role.clause, draw.random(ends[-1]))
    clause[(ends - clauses - 1)[cue]] = len(language.starts) - 2

    length = np.diff(language.starts)[clause]
    stops = np.cumsum(length)
    places = np.arange(stops[-1]) + np.repeat(language.starts[clause] - (stops - length), length)
    parts, u = language.parts[places], draw.random(stops[-1])
    words = np.empty(len(parts), dtype=np.int64)
    for part, own in role.words.items():
        at = np.flatnonzero(parts == part)
        words[at] = own[_pick(role.taste[part], u[at])]

    last = stops[ends - 1] - 1
    words[last[~_ends_sentence()[words[last]]]] = language.words.index(".")
    return words, np.concatenate([[0], last[:-1] + 1])


def _write(role: Role, words: Ints, first: Ints) -> Ragged:
    """Speeches as text, with capitals and line breaks where they belong."""
    language = _language()
    length = language.length[words]
    column = np.cumsum(length)
    starts = np.repeat(column[first] - length[first], np.diff(first, append=len(words)))
    line = (column - starts) // role.width
    opens = np.zeros(len(words), dtype=bool)
    opens[1:] = _ends_sentence()[words[:-1]]
    style = np.where(opens, IN_SENTENCE, INSIDE)
    apart = np.flatnonzero(_stands_apart()[words])  # a mark stays in the line of its word
    broken = apart[np.diff(line[apart], prepend=0) > 0]
    style[broken] = np.where(opens[broken] | role.verse, IN_VERSE, IN_PROSE)
    style[first] = IN_SPEECH

    written = style * len(language.words) + words
    text = b"".join([language.spelled[i] for i in written.tolist()])
    ends = np.cumsum(language.length[written])
    offsets = np.concatenate([[0], ends[first[1:] - 1], ends[-1:]])
    return Ragged(np.frombuffer(text, dtype=np.uint8), offsets)


@cache
def _stands_apart() -> npt.NDArray[np.bool_]:
    """Which words are written apart from the one before."""
    return np.array([_spell(word, INSIDE)[0] == " " for word in _language().words])


@cache
def _ends_sentence() -> npt.NDArray[np.bool_]:
    """Which words are followed by a capital: marks that end a sentence, and stage directions."""
    return np.array([word in {".", "!", "?"} or word[0] == "[" for word in _language().words])


def _shares(weights: Floats) -> Floats:
    """Cumulative shares, which end at 1."""
    total = np.cumsum(weights)
    return np.asarray(total / total[-1])


def _pick(cumulative: Floats, u: Floats) -> Ints:
    """Positions drawn with the shares' probabilities from uniform numbers below 1."""
    return np.searchsorted(cumulative, u, side="right")
