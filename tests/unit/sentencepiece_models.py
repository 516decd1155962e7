"""Small SentencePiece models, trained by SentencePiece itself, and texts to try them on."""

from __future__ import annotations

import functools
import io
import random
from typing import Any

import sentencepiece

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "In 1990 there were 1000 of them, in 2000 about 20,000; now there are 5000000...",
    "Wait......... what?!! No!!! --- yes ---------- hahaha hahahaha",
    "Die Größe der Städte wächst, und die Flüsse werden größer; das weiß jedes Kind.",
    "À côté d'un élève zélé, l'été paraît très court où qu'on aille.",
    "Быстрая коричневая лиса прыгает через ленивую собаку, а собака спит дальше.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "東京は日本の首都です。素早い茶色の狐が、のろまな犬を飛び越える。カタカナもある。",
    "敏捷的棕色狐狸跳过了懒狗。北京是中国的首都。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 서울은 한국의 수도이다.",
    "नमस्ते दुनिया, तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर से कूदती है।",
    "الثعلب البني السريع يقفز فوق الكلب الكسول، والكلب نائم.",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
]

ODD = [
    *("", " ", "  ", "a", " a", "a ", "  a  b  ", "\t", "\n", "a\tb", "a\r\nb", "   \u3000 \u00a0", "a  b"),
    *("</s>", "<s>", "<unk>", "<pad>", "<0x41>", "a<0x41>b", "\u2581", "\u2581\u2581a", "a\u2581", "a \u2581 b"),
    *("\u00a0x\u00a0", "\u3000x\u3000y", "\u2028\u2029", "a\u200bb\u200dc\ufeffd", "\x00\x01\x1f\x7f\x80\x9f"),
    *(
        "e\u0301 e\u0301\u0323 o\u0302\u0303",
        "\uff21\u0301",
        "A\u030a \u212b \u00c5",
        "a \u0308b",
        "\u0301",
        "x\u0301\u0301\u0301",
    ),
    *("ﬁ ﬂ ① Ａｂｃ １２３ ㍿ ½ ²", "ｶﾞｷﾞ ｱｲｳ か\u3099", "\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국", "ไทยแลนด์ ํา"),
    *(
        "🙂",
        "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 👍🏽",
        "𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
        "\U0010ffff\ufffe\uffff\ufffd",
        "صلى ﷺ",
        "नमस्ते क्ष त्र",
    ),
    *(
        "1000",
        "100000",
        "2000000 and 3000",
        "........",
        "-----",
        "!!!",
        "hahahahaha",
        "aaaaaaaaaa",
        ". .. ... .... .....",
    ),
    *("«quotes» “and” ‘others’…—–", "ſ ẞ ß İ i\u0307 ŉ", "¨´`˜x", "http://example.org/a?b=c&d=%20", "C++ & C# <b>"),
    *("unknown: ☃ Ꙙ ꯁ ✂", "☃☃☃ ☃a☃", "mixed東京text한국abc", "TheQuickBrownFox", "x" * 300, "fo" * 99),
]


@functools.cache
def trained(**settings: Any) -> bytes:
    """A model file; `settings` are SentencePiece's own."""
    written = io.BytesIO()
    usual = {
        "vocab_size": 350,
        "character_coverage": 0.985,
        "minloglevel": 2,
        "num_threads": 1,
        "hard_vocab_limit": False,
    }
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(CORPUS * 7), model_writer=written, **{**usual, **settings}
    )
    return written.getvalue()


@functools.cache
def texts(count: int = 300) -> list[str]:
    """The odd ones, and as many made of odd characters by chance."""
    chance = random.Random(5)
    letters = sorted({letter for line in CORPUS for letter in line}) + list(
        " \u2581\u00a0\u3000\u200b\u0301\u0308\u0323\u093c\u3099\u309aﬁÅＡ①ｶﾞ\u1100\u1161\u11a8🙂👩\u200d☃0000....  "
    )
    made = ["".join(chance.choices(letters, k=chance.choice((2, 3, 5, 11, 23)))) for _ in range(count)]
    cut = [line[chance.randrange(9) : chance.randrange(20, 50)] for line in CORPUS]
    return [*ODD, *CORPUS, *cut, *made]
