"""Codes and English names of languages (ISO 639)."""

from __future__ import annotations

_TWO_LETTERS = """
aa aar Afar; ab abk Abkhazian; ae ave Avestan; af afr Afrikaans; ak aka Akan; am amh Amharic; an arg Aragonese;
ar ara Arabic; as asm Assamese; av ava Avaric; ay aym Aymara; az aze Azerbaijani; ba bak Bashkir; be bel Belarusian;
bg bul Bulgarian; bi bis Bislama; bm bam Bambara; bn ben Bengali; bo bod Tibetan; br bre Breton; bs bos Bosnian;
ca cat Catalan; ce che Chechen; ch cha Chamorro; co cos Corsican; cr cre Cree; cs ces Czech; cu chu Church Slavic;
cv chv Chuvash; cy cym Welsh; da dan Danish; de deu German; dv div Dhivehi; dz dzo Dzongkha; ee ewe Ewe; el ell Greek;
en eng English; eo epo Esperanto; es spa Spanish; et est Estonian; eu eus Basque; fa fas Persian; ff ful Fulah;
fi fin Finnish; fj fij Fijian; fo fao Faroese; fr fra French; fy fry Western Frisian; ga gle Irish;
gd gla Scottish Gaelic; gl glg Galician; gn grn Guarani; gu guj Gujarati; gv glv Manx; ha hau Hausa; he heb Hebrew;
hi hin Hindi; ho hmo Hiri Motu; hr hrv Croatian; ht hat Haitian Creole; hu hun Hungarian; hy hye Armenian;
hz her Herero; ia ina Interlingua; id ind Indonesian; ie ile Interlingue; ig ibo Igbo; ii iii Sichuan Yi;
ik ipk Inupiaq; io ido Ido; is isl Icelandic; it ita Italian; iu iku Inuktitut; ja jpn Japanese; jv jav Javanese;
ka kat Georgian; kg kon Kongo; ki kik Kikuyu; kj kua Kuanyama; kk kaz Kazakh; kl kal Kalaallisut; km khm Khmer;
kn kan Kannada; ko kor Korean; kr kau Kanuri; ks kas Kashmiri; ku kur Kurdish; kv kom Komi; kw cor Cornish;
ky kir Kyrgyz; la lat Latin; lb ltz Luxembourgish; lg lug Ganda; li lim Limburgan; ln lin Lingala; lo lao Lao;
lt lit Lithuanian; lu lub Luba-Katanga; lv lav Latvian; mg mlg Malagasy; mh mah Marshallese; mi mri Maori;
mk mkd Macedonian; ml mal Malayalam; mn mon Mongolian; mr mar Marathi; ms msa Malay; mt mlt Maltese; my mya Burmese;
na nau Nauru; nb nob Norwegian Bokmål; nd nde North Ndebele; ne nep Nepali; ng ndo Ndonga; nl nld Dutch;
nn nno Norwegian Nynorsk; nr nbl South Ndebele; nv nav Navajo; ny nya Chichewa; oc oci Occitan; oj oji Ojibwa;
om orm Oromo; or ori Odia; os oss Ossetian; pa pan Punjabi; pi pli Pali; pl pol Polish; ps pus Pashto;
pt por Portuguese; qu que Quechua; rm roh Romansh; rn run Rundi; ro ron Romanian; ru rus Russian; rw kin Kinyarwanda;
sa san Sanskrit; sc srd Sardinian; sd snd Sindhi; se sme Northern Sami; sg sag Sango; si sin Sinhala; sk slk Slovak;
sl slv Slovenian; sm smo Samoan; sn sna Shona; so som Somali; sq sqi Albanian; sr srp Serbian; ss ssw Swati;
st sot Southern Sotho; su sun Sundanese; sv swe Swedish; sw swa Swahili; ta tam Tamil; te tel Telugu; tg tgk Tajik;
th tha Thai; ti tir Tigrinya; tk tuk Turkmen; tl tgl Tagalog; tn tsn Tswana; to ton Tonga; tr tur Turkish;
ts tso Tsonga; tt tat Tatar; tw twi Twi; ty tah Tahitian; ug uig Uyghur; uk ukr Ukrainian; ur urd Urdu; uz uzb Uzbek;
ve ven Venda; vi vie Vietnamese; vo vol Volapük; wa wln Walloon; wo wol Wolof; xh xho Xhosa; yi yid Yiddish;
yo yor Yoruba; za zha Zhuang; zh zho Chinese; zu zul Zulu;
"""
"""Languages with a two-letter code: that code, the three-letter code, the English name."""

_THREE_LETTERS = """
ace Acehnese; acm Mesopotamian Arabic; apc North Levantine Arabic; ary Moroccan Arabic; arz Egyptian Arabic;
ast Asturian; awa Awadhi; ban Balinese; bho Bhojpuri; bjn Banjar; ceb Cebuano; ckb Central Kurdish; crh Crimean Tatar;
fon Fon; fur Friulian; gom Goan Konkani; grc Ancient Greek; hne Chhattisgarhi; hsb Upper Sorbian; kab Kabyle;
kam Kamba; kea Kabuverdianu; lij Ligurian; lmo Lombard; ltg Latgalian; lus Mizo; mag Magahi; mai Maithili;
min Minangkabau; mni Manipuri; nso Northern Sotho; pag Pangasinan; pam Pampanga; pap Papiamento; pcm Nigerian Pidgin;
prs Dari; sat Santali; scn Sicilian; szl Silesian; tpi Tok Pisin; tum Tumbuka; tzm Central Atlas Tamazight;
umb Umbundu; vec Venetian; war Waray; wuu Wu Chinese; yue Cantonese;
"""
"""Further languages of multilingual models, which have a three-letter code only."""

_PREFERRED = """
arb ar; als sq; ayr ay; azj az; cmn zh; ekk et; fil tl; fuv ff; gaz om; in id; iw he; khk mn; kmr ku; knc kr; lvs lv;
no nb; nor nb; npi ne; ory or; pbt ps; pes fa; plt mg; quy qu; swh sw; tw ak; twi ak; uzn uz; ydd yi; zsm ms;
"""
"""Codes of the same language, or of its most common form, and the code that stands for them here."""


def _rows(table: str) -> list[list[str]]:
    return [row.split(maxsplit=2) for row in table.replace("\n", " ").split(";") if row.strip()]


NAMES = {row[0]: row[2] for row in _rows(_TWO_LETTERS)} | {
    code: " ".join(name) for code, *name in _rows(_THREE_LETTERS)
}
"""The English name of each language, by its shortest code."""

PREFERRED = {row[1]: row[0] for row in _rows(_TWO_LETTERS)} | {row[0]: row[1] for row in _rows(_PREFERRED)}
"""The shortest code, by other codes of the same language."""
