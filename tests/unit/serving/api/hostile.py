"""Texts that servers have failed at."""

HOSTILE = (
    " ",
    "\x00",
    "a\x00b",
    "</s>",
    "<pad>",
    ">>de<< <unk>",
    "<script>alert(1)</script>",
    "\x1b[31mred",
    "\u202eright to left\u202c",
    "שלום עולם",
    "👨‍👩‍👧",
    "e\u0301" * 50,
    "\ufeff",
    "\u2028\u2029",
    "\r\n\r\n",
    "x" * 40_000,
    " " * 40_000,
    "\ufffe\uffff",
    "{{7*7}} ${x} %s",
)
