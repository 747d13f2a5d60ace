"""Synthetic Shakespeare: 715 roles in 37 invented plays, each with its own style of speech.

It has the same numbers of roles and speeches as the real dataset, with a heavy-tailed distribution. All roles
share one language. Each role has its own preferred words, clauses, punctuation and line length, and each play
has its own names. Speeches are assembled from the word lists and clauses below, so that a model can learn
spelling, words, grammar and the style of a role.

All speeches of a role are generated together by array operations: first the clauses, then their parts of
speech, a word for each part, and its spelling, which depends on its position in the speech.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from fedopt import rng
from fedopt.data.store.columns import Ragged
from fedopt.data.synthetic.common import (
    Doubles,
    Integers,
    check_client,
    choose,
    count_clients,
    cumulative_shares,
    heavy_tailed_sizes,
)

CLIENTS = {"train": 715, "test": 715}
EXAMPLES = {"train": 16_068, "test": 2_356}

PLAYS, NAMES = 37, 7  # names in each play
ROLE_SPREAD, PLAY_SPREAD = 0.9, 0.7  # standard deviation of the log frequency of a word

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
SECOND = "thou shalt,thou wilt,thou must,thou mayst,you shall,you will,you must,you may".split(",")
CALLS = "O come nay well alas why fie hark peace marry ay farewell indeed away".split()
TITLES = "my lord,good sir,madam,sweet lady,my liege,your grace,dear cousin,gentle friend".split(",")
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
def sizes(split: str) -> Integers:
    """Return the number of speeches of each role, int64 (715,). Half of the roles have ten or fewer."""
    clients = count_clients(CLIENTS, split)
    return heavy_tailed_sizes(rng.generator("synthetic_shakespeare", "sizes"), clients, EXAMPLES[split])


def ids(split: str) -> list[str]:
    """Return the sorted names of the roles, which are the same in both splits."""
    return [f"role{number:03d}" for number in range(count_clients(CLIENTS, split))]


def examples(split: str, client: int) -> dict[str, Ragged]:
    """Return the speeches of a role: the column `snippets`, ragged uint8 in ASCII."""
    counts = sizes(split)
    client = check_client(split, client, len(counts))
    role = _role(client)
    draw = rng.generator("synthetic_shakespeare", split, client)
    words, first = _draw_words(role, int(counts[client]), draw)
    return {"snippets": _spell_speeches(role, words, first)}


class PlayLanguage(NamedTuple):
    """The language that all roles share. Words are identified by their position in `words`."""

    words: list[str]
    lists: dict[str, Integers]  # word positions of each part of speech
    names: Integers  # (PLAYS, NAMES) names of each play
    cues: Integers  # (PLAYS, NAMES + 4) stage directions of each play
    parts: npt.NDArray[np.str_]  # parts of speech of all clauses, concatenated
    starts: Integers  # (clauses + 1,) start of each clause in `parts`; the last clause is the stage direction
    spelled: list[bytes]  # every word in every style
    length: Integers  # of `spelled`


# The spelling of a word depends on its position: inside a sentence, or first in a sentence, in a line of
# verse, in a line of prose, or in the speech.
STYLES = INSIDE, IN_SENTENCE, IN_VERSE, IN_PROSE, IN_SPEECH = range(5)


@cache
def _language() -> PlayLanguage:
    """Build the tables of words, clauses and spellings."""
    names = _names()
    lists = {  # the order determines the random numbers
        "n": NOUNS,
        "a": ADJECTIVES,
        "r": ADVERBS,
        "p": PREPOSITIONS,
        "d": DETERMINERS,
        "D": PLURALS,
        "v": VERBS,
        "g": [_with_ending(verb, "ing") for verb in VERBS],
        "e": [_with_ending(verb, "ed") for verb in VERBS],
        "w": [_with_ending(verb, "eth") for verb in VERBS] + [_with_s(verb) for verb in VERBS],
        "N": [_with_s(noun) for noun in NOUNS],
        "s": SUBJECTS,
        "u": SECOND,
        "o": OBJECTS,
        "m": MODALS,
        "l": LINKS,
        "c": CALLS,
        "t": TITLES,
        "q": ASKING,
        "k": names,
        "B": DIRECTIONS + [f"[To {name.upper()}]" for name in names],
        ",": [","],
        "?": ["?"],
        ".": MARKS,
    }
    words = [word for part in lists.values() for word in part]
    ends = np.cumsum([len(part) for part in lists.values()])
    places = {k: np.arange(end - len(lists[k]), end) for k, end in zip(lists, ends, strict=True)}
    names_of_play, cues = (
        places["k"].reshape(PLAYS, NAMES),
        places["B"][len(DIRECTIONS) :].reshape(PLAYS, NAMES),
    )
    clauses = [clause.replace(" ", "") for clause in CLAUSES.strip().replace("\n", "|").split("|")] + [CUE]
    spelled = [_spell(word, style).encode("ascii") for style in STYLES for word in words]
    return PlayLanguage(
        words=words,
        lists=places,
        names=names_of_play,
        cues=np.concatenate([np.tile(places["B"][: len(DIRECTIONS)], (PLAYS, 1)), cues], axis=1),
        parts=np.array(list("".join(clauses))),
        starts=np.cumsum([0] + [len(clause) for clause in clauses]),
        spelled=spelled,
        length=np.array([len(text) for text in spelled]),
    )


def _names() -> list[str]:
    """Return invented names, NAMES for each play."""
    draw = rng.generator("synthetic_shakespeare", "names")
    heads = "Bran Cor Del Fen Gor Hal Ist Lor Mar Nor Ost Per Quin Ros Sil Tor Ul Ver Wil Yor".split()
    middles = "a e i o an el in or".split()
    tails = "dro lia mond nus phe ric sa thel tio vane wyn".split()
    every = [head + middle + tail for head in heads for middle in middles for tail in tails]
    return [every[i] for i in draw.permutation(len(every))[: PLAYS * NAMES]]


def _with_ending(verb: str, ending: str) -> str:
    return verb.removesuffix("e") + ending


def _with_s(word: str) -> str:
    """Return the plural of a noun or the third person of a verb.

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
    """The style of a role."""

    words: dict[str, Integers]  # the words it uses for each part of speech
    shares: dict[str, Doubles]  # cumulative shares of these words
    clause: Doubles  # cumulative shares of the clauses
    clauses: float  # median number of clauses in a speech
    cue: float  # share of speeches with a stage direction
    verse: bool  # every line begins with a capital letter
    width: int  # characters of a line


def _role(client: int) -> Role:
    """Return the style of a role. It depends only on the number, so both splits share it."""
    language = _language()
    play = client * PLAYS // CLIENTS["train"]
    draw = rng.generator("synthetic_shakespeare", "role", client)
    play_preference = rng.generator("synthetic_shakespeare", "play", play).standard_normal(
        len(language.words)
    )
    preference = ROLE_SPREAD * draw.standard_normal(len(language.words)) + PLAY_SPREAD * play_preference
    familiar, archaic = 1.5 * draw.standard_normal(2)
    preference += familiar * _familiarity()
    preference[language.lists["w"][: len(VERBS)]] += archaic
    words = {**language.lists, "k": language.names[play], "B": language.cues[play]}
    verse = bool(draw.random() < 0.65)
    return Role(
        words=words,
        shares={
            part: cumulative_shares(np.exp(preference[own]) / (np.arange(len(own)) + 2.0))
            for part, own in words.items()
        },
        clause=cumulative_shares(np.exp(draw.standard_normal(len(language.starts) - 2))),
        clauses=float(draw.lognormal(0.9, 0.4)),
        cue=float(draw.uniform(0.0, 0.12)),
        verse=verse,
        width=int(draw.integers(38, 46) if verse else draw.integers(60, 76)),
    )


@cache
def _familiarity() -> Doubles:
    """Return 1 for each word with thou, thee or thy, -1 with you or your, and 0 otherwise."""
    parts = [set(word.split()) for word in _language().words]
    return np.array([1.0 if word & FAMILIAR else -1.0 if word & FORMAL else 0.0 for word in parts])


def _draw_words(role: Role, n: int, draw: np.random.Generator) -> tuple[Integers, Integers]:
    """Return the words of `n` speeches, concatenated, and the start of each speech, (n,)."""
    language = _language()
    clauses = np.ceil(draw.lognormal(np.log(role.clauses), 1.0, n)).clip(1, 80).astype(np.int64)
    cue = draw.random(n) < role.cue
    ends = np.cumsum(clauses + cue)
    clause = choose(role.clause, draw.random(ends[-1]))
    clause[(ends - clauses - 1)[cue]] = len(language.starts) - 2

    length = np.diff(language.starts)[clause]
    stops = np.cumsum(length)
    places = np.arange(stops[-1]) + np.repeat(language.starts[clause] - (stops - length), length)
    parts, u = language.parts[places], draw.random(stops[-1])
    words = np.empty(len(parts), dtype=np.int64)
    for part, own in role.words.items():
        at = np.flatnonzero(parts == part)
        words[at] = own[choose(role.shares[part], u[at])]

    last = stops[ends - 1] - 1
    words[last[~_ends_sentence()[words[last]]]] = language.words.index(".")
    return words, np.concatenate([[0], last[:-1] + 1])


def _spell_speeches(role: Role, words: Integers, first: Integers) -> Ragged:
    """Return the speeches as text with capital letters and line breaks."""
    language = _language()
    length = language.length[words]
    column = np.cumsum(length)
    starts = np.repeat(column[first] - length[first], np.diff(first, append=len(words)))
    line = (column - starts) // role.width
    starts_sentence = np.zeros(len(words), dtype=bool)
    starts_sentence[1:] = _ends_sentence()[words[:-1]]
    style = np.where(starts_sentence, IN_SENTENCE, INSIDE)
    breakable = np.flatnonzero(_follows_space()[words])  # a punctuation mark stays in the line of its word
    broken = breakable[np.diff(line[breakable], prepend=0) > 0]
    style[broken] = np.where(starts_sentence[broken] | role.verse, IN_VERSE, IN_PROSE)
    style[first] = IN_SPEECH

    written = style * len(language.words) + words
    text = b"".join([language.spelled[i] for i in written.tolist()])
    ends = np.cumsum(language.length[written])
    offsets = np.concatenate([[0], ends[first[1:] - 1], ends[-1:]])
    return Ragged(np.frombuffer(text, dtype=np.uint8), offsets)


@cache
def _follows_space() -> npt.NDArray[np.bool_]:
    """Return which words follow a space."""
    return np.array([_spell(word, INSIDE)[0] == " " for word in _language().words])


@cache
def _ends_sentence() -> npt.NDArray[np.bool_]:
    """Return which words end a sentence: some punctuation marks, and stage directions."""
    return np.array([word in {".", "!", "?"} or word[0] == "[" for word in _language().words])
