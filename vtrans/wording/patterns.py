"""Regular expressions for text that is copied, by kind."""

from __future__ import annotations

# Repetitions are bounded where a hostile text could make a search quadratic.
PATTERNS = {
    "code": r"<(?:code|kbd)\b[^<>]*>.{0,500}?</(?:code|kbd)>|`[^`]+`",
    "addresses": (
        r"(?:\b(?:https?|ftp)://|\bwww\.)(?:[^\s<>\"()]|\([^\s<>\"()]*\))+"
        r"(?<![.,;:!?\[\]'\u2018\u2019\u201c\u201d])"
    ),
    "e-mail": r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+",
    "tags": r"</?[A-Za-z][^<>]*>|&lt;/?[A-Za-z][^<>&]*&gt;|&(?:[A-Za-z]+|#\d+|#x[0-9A-Fa-f]+);",
    "braces": (
        r"\{\w{1,40},\s?(?:plural|select|selectordinal),"  # a message of ICU
        r"(?:[^{}]{1,200}\{[^{}]{0,300}(?:\{[^{}]{0,50}\}[^{}]{0,300}){0,5}\}){1,12}\s?\}"
        r"|\{\{[^{}]*\}\}|\$?\{[^{}\s]*(?:\{[^{}\s]*\}[^{}\s]*){0,5}\}|%\{\w+\}|\$\(\w+\)"
    ),
    "format": (
        r"%(?:\d{1,3}\$|\(\w+\))?[-+0#]{0,5}(?:\d{1,4}|\*(?:\d{1,3}\$)?)?(?:\.\d{1,4})?"
        r"(?:hh|h|ll|l|z)?[sdifgeuxXcpoE@](?![A-Za-z])"
    ),
}
"""What is protected by default, by kind; earlier kinds take precedence."""

# Letters, digits and underscores of ASCII between two marks, as in `%name%`, `$x$` and `:smile:`.
_PAIRS = (rf"(?<![\w{mark}])(?:{mark}\w+{mark})+(?![\w{mark}]|\.\d)" for mark in ("%", r"\$", ":", "@", "#"))
PAIRS = rf"(?a:{'|'.join(_PAIRS)})"
PLACEHOLDERS = (  # of programs in which no flag tells the format; `100%`, `50%n` and `$5` are text
    rf"{PAIRS}|(?a:%\d{{1,2}}:[-.\d]*[a-z](?![^\W_])|%<\w+>[\d.]*[sdfxi](?![^\W_])"
    r"|(?<![\w%])(?:%[A-Za-z](?:[-:/.](?=%[A-Za-z]))?)+(?![^\W_])"
    r"|(?<![\w$\\])\$[A-Za-z_]\w*|(?<![\w%])%\d{1,2}(?!\w|[%$]|[.,]\d))|\[\[[^\[\]]{1,200}\]\]"
)
ARGUMENT = r"(?a:(?:%L?\d{1,2}|(?<![\w$\\])\$\d{1,2}(?![.,]\d))(?![\w$]|:[-.\d]*[a-z]))"
"""`%1` of Qt and KDE, and `$1`, which is a placeholder in the strings of programs only."""
KEYS = r"\b(?:Ctrl|Alt|Shift|Meta|Super|Cmd|Win)(?:\+\w+|-[A-Z]\b)+"
NAMES = (  # paths of Windows, keys, and characters and fonts of groff
    rf"(?<!\w)(?:[A-Za-z]:|%\w{{1,40}}%)\\[\w.~$\\-]{{0,200}}[\w\\]|{KEYS}"
    r"|\\(?:\(\w\w|f(?:\[\w*\]|\(\w\w|[BIPR])(?!\w)|\*?\[\w+\])"
)
CODE = r"(?<![\w-])(?=[A-Z./-]{0,30}\d)(?=[\d./-]{0,30}[A-Z])[A-Z\d]{1,30}(?:[./-][A-Z\d]{1,30}){0,5}(?![\w-]|[@/.]\w)"
"""A word of capitals and digits, such as A-17, COVID-19 or 4K."""

_ENDINGS = (
    r"(?:ya?ml|json|toml|ini|cfg|conf|log|txt|md|pdf|docx?|xlsx?|pptx?|[ct]sv|png|jpe?g|gif|svg|mp[34]|wav|zip|tar|gz|exe"
    r"|dll|iso|apk|sh|py|js|ts|css|html?|xml|sql|cpp|hpp|java|rs|php|m4a)"
)
_DOMAINS = (  # without it, at, me, no and us, which may begin a sentence after a missing space
    r"(?:com|org|net|io|dev|edu|gov|info|ai|app|biz|blog|cloud|co|int|local|ly|mil|museum|online|shop|site|store|tech|tv|xyz"
    r"|au|br|ca|ch|cn|cz|de|dk|es|eu|fi|fr|ie|jp|kr|mx|nl|nz|pl|pt|ru|se|tr|uk|za)"
)
_NUMBERED = (  # what has numbers such as 3.1, which are no fractions
    r"(?:Android|Bluetooth|Chrome|Debian|DisplayPort|Firefox|Java|Perl|Python|Qt|Ruby|Rust|Safari|Swift|Ubuntu|Unicode"
    r"|Windows|(?!(?:AUD|CAD|CHF|DKK|EUR|GBP|NOK|SEK|USD|US)\b)[A-Z][A-Za-z]{0,15}[A-Z])"
)
_HEX = r"[\da-fA-F]{1,4}"
_NO_CODE = r"(?<![\w-])(?![A-Z]{5,30}-?\d{1,3}(?!\w)|\d+(?:[AP]M|K[GM])\b)"  # COVID-19 is a word, and 10AM a time

EVERYDAY_PATTERNS = {
    "names": NAMES,
    "placeholders": PLACEHOLDERS,
    "shared folders": r"(?<![\w\\])\\\\[\w.-]{1,60}(?:\\[\w.$-]{1,60}){1,9}(?<![.-])",
    "hashtags": r"(?<![\w#&@./])#(?:[^\W\d_]\w{1,60}|[\da-fA-F]{6})(?!\w)",
    "mentions": r"(?<![\w@./+-])@[A-Za-z_]\w{0,40}(?:[.-]\w{1,40}){0,3}(?!\w)",
    "long options": (
        r"(?<![^\s(\[|,=\"'\u201c])--[a-z][a-z\d]{0,30}(?:-[a-z\d]{1,30}){0,5}"
        r"(?:=[^\s,;)\]\"']{0,60}[^\s,.;:!?)\]\"'])?(?![\w'-])"
    ),
    "short options": (  # `-5` and `-no` are text
        r"^-[A-Za-z](?=,? --|,? [A-Z]{2,}\b)|(?:(?<=[^\s.!?\u2026\"-]\s)|(?<=[(\[|]))"
        r"-(?!(?:and|as|but|he|if|no|not|or|she|so|the|we|who|yes|you|I)\b)[A-Za-z]{1,3}(?![\w'\u2019-])"
    ),
    "options of compilers": r"(?<!\S)-W[a-z]+(?:-[a-z]+){0,4}(?![\w-])",
    "escapes": r"\\[nrt](?![a-z])",
    "emphasis in Markdown": r"(?<!\w)_(?=[^\W_](?:[^_]{0,100}[^\s_])?_(?!\w))|(?<=[^\W_])_(?!\w)",
    "numbers of versions and sections": (
        rf"(?<![\w.-]){_NUMBERED} \d{{1,4}}\.\d{{1,4}}(?![\w%.-]|,\d| (?:thousand|[mbt]r?illion|percent|times|per)| ?%)"
        r"|(?:(?<=[Vv]ersion )|(?<=[Rr]elease )|(?<=[Ss]ection )|(?<=[Cc]hapter )|(?<=[Ff]igure )|(?<=[Tt]able ))"
        r"\d{1,4}\.\d{1,4}(?![\w%-]|[.,]\d)"
        r"|(?<![\w.,$-])\d{1,4}\.\d{1,4}(?= (?:and|or) (?:above|higher|later|newer|older)\b)"
    ),
    "words with capitals inside": (  # PhDs and McDonald are text
        r"(?<![\w@./\\=-])(?<!=\")(?!(?:the|and|Ma?c|De|L[ae]|Van|Fitz)[A-Z]|PhD|WiFi)(?:[a-z]{2,20}|[A-Z][a-z\d]{1,20})"
        r"(?:[A-Z][a-z\d]{1,20}|[A-Z]{2,9}(?![a-z])){1,6}(?:\.[A-Za-z]\w{0,30}){0,3}(?!\w)"
    ),
    "patterns of files": (
        r"(?<![\w*])\*(?:\.[A-Za-z]\w{0,9}){1,2}(?:\[\w{1,9}\])?(?!\w)"
        rf"|(?<![\w.*?])(?=[\w-]{{0,40}}[*?])[\w*?-]{{1,40}}\.{_ENDINGS}(?!\w)"
    ),
    "this computer": r"(?<![\w.])localhost:\d{2,5}(?!\d)(?:/[^\s<>\"()]*\w/?)?",
    "folders": (  # `he/she` and `w/` are text
        r"(?<![\w./-])(?:[A-Za-z.][\w.-]{1,40}/){1,9}(?=[.,;:!?)\"]|$)|(?<= folder |rectory )[\w.-]{1,40}/(?!\S)"
    ),
    "branches": r"(?<![\w./-])(?:origin|upstream|feature|bugfix|hotfix|release|refs)/[\w./-]{0,60}\w(?!\w)",
    "images": r"(?<![\w./-])[a-z][\w./-]{1,60}:(?:\d{1,4}(?:\.\d{1,4}){1,3}(?:-[\w.-]{0,30}\w)?|latest)(?!\w|[.,:]\d)",
    "revisions": r"(?<!\w)HEAD[~^]\d{0,3}|(?<![\w-])gh-\d{1,6}(?!\w)|(?<![\w.])\d{1,6}\.\.\d{1,6}(?![\w.])",
    "hexadecimal groups": r"(?<![\w./-])[\da-f]{4}(?:-[\da-f]{4}){1,7}(?![\w-])",
    "pages": (
        r"(?<![\w@./-])(?:[\w-]{1,60}\.){1,5}[A-Za-z]{2,12}(?::\d{2,5})?/"
        r"[^\s<>\"()]*(?<![.,;:!?\[\]'\u2018\u2019\u201c\u201d])"
    ),
    "paths": r"(?<![\w./~-])(?:~|\.{1,2})?(?:/[\w.+-]*\w){1,30}/?(?!\w)",  # `and/or` and `1/2` are text
    "files and servers": (
        rf"(?<![\w./-])\w[\w-]{{0,60}}(?:[./]\w[\w-]{{0,60}}){{0,9}}\.(?:{_ENDINGS}|{_DOMAINS})(?!\w)"
        r"|(?<!\w)(?:Make|Docker|Jenkins|Vagrant|Gem|Rake)file(?!\w)"
    ),
    "endings of files": rf"(?<![\w.)\]])\.(?:tar\.)?{_ENDINGS}(?!\w)",
    "dates": r"(?<![\w./,-])(?:\d{1,2}/\d{1,2}/(?:\d{4}|\d{2})|\d{4}/\d{1,2}/\d{1,2})(?![\w/])",
    "settings": r"(?<![\w./-])[A-Za-z][\w.-]{0,60}(?:[=~<>]=\d|=\w)[\w.]{0,20}(?<!\.)(?!\w)",
    "hidden files": r"(?<![^\s(\[\"'])\.(?:env|git|[a-z]{2,8}(?:rc|ignore))(?!\w)",
    "versions": (  # `9.5` is text
        r"(?<![\w.,])(?:[vV](?=\d{1,4}\.\d)\d{1,4}|\d{1,4}\.\d{1,4})(?:\.\d{1,4}){1,3}(?:[-+]?[A-Za-z]\w*(?:\.\d{1,4}){0,2})?(?!\w|\.\d)"
    ),
    "standards": (
        r"(?<!\w)(?:ISO|IEC|DIN|EN|IEEE|ANSI|RFC)(?:[/ -](?:ISO|IEC|EN|TS|TR)){0,3}"
        r"[ -]?\d{1,6}(?:[.:-]\d{1,6}){0,4}(?!\w)"
    ),
    "ISBNs": r"(?<![\w-])\d{1,6}(?:-\d{1,7}){2,5}(?![\w-])|(?<!\w)97[89](?: \d{1,7}){3,4}(?!\w)",
    "accounts and cards": r"(?<!\w)(?:[A-Z]{2}\d{2}(?: [A-Z\d]{4}){2,7}(?: [A-Z\d]{1,3})?|\d{4}(?: \d{4}){3})(?!\w)",
    "mixed fractions": r"(?<![\w.,/-])\d{1,3} [1-9]/[2-9](?![\w/]|[.,]\d)",
    "phone numbers": (
        r"(?<![\w+])\+\d{1,3}(?:[ ./-]?\(?\d{1,5}\)?){2,5}(?!\d)"
        r"|(?<!\w)\(\d{2,5}\)[ -]?\d{3,5}(?:[ -]\d{2,5}){0,2}(?!\w)"
        r"|(?<![\w.,/-])(?:\d{3}-\d{4}|\d{3}[ .]\d{3}[ .]\d{4}|0\d{1,4}[ /-]\d{3,8}(?: \d{2,5}){0,3})(?![\w-]|[.,]\d)"
    ),
    "emoticons": r"(?<!\S)[:;]['\u2019]?-?[()DP](?!\S)",
    "functions": (
        r"(?<![\w.$-])(?:[A-Za-z_]\w{0,40}(?:\.|::|->)){0,5}[A-Za-z_]\w{0,60}\(\)|(?<![\w:])\w{1,40}(?:::\w{1,40}){1,5}(?!\w)"
        r"|(?<!\w)__(?:init|main|name|file|call|str|repr|len|iter|next|enter|exit|eq|hash|new|del|dict|doc|all)__(?!\w)"
    ),
    "small letters with digits": (  # such as `mp3`; `10am` is text
        r"(?<![\w.$&/-])(?:[a-z]{1,20}\d|0x[\da-fA-F])\w{0,30}(?![\w(]|[-@./]\w)"
    ),
    "UUIDs": r"(?<![\w./-])[\da-fA-F]{8}(?:-[\da-fA-F]{4}){3}-[\da-fA-F]{12}(?![\w-])",
    "small letters before digits": (
        r"(?<![\w-])(?!(?:age|catch|circa|covid|ex|mid|non|over|plus|post|pre|since|sub|top|type|under)-)"
        r"[a-z]{2,20}(?:-[a-z]{2,20}){0,3}-\d{2,6}(?![\w-]|[.,]\d)"
    ),
    "stars": r"(?<![\w./-])[A-Z][A-Za-z]{2,20}-\d{1,5}[a-z](?![\w-])",
    "letters between digits": (  # such as the checksum `9e107d9d`
        r"(?<![\w./-])(?=\w{6})[A-Za-z]{0,40}\d{1,40}[A-Za-z]{1,40}\d\w{0,130}(?![\w-]|/\w)"
    ),
    "addresses of network cards and IPv6": (
        rf"(?<![\w.:])(?:(?:{_HEX}:){{4,7}}{_HEX}|{_HEX}(?::{_HEX}){{0,6}}::(?:{_HEX}(?::{_HEX}){{0,6}})?)(?![\w:])"
    ),
    "angles": r"(?<!\w)\d{1,3}\u00b0\d{1,2}['\u2032](?:\d{1,2}(?:\.\d{1,4})?[\"\u2033])?[NSEW]?(?!\w)",
    "coordinates": r"(?<![\w.,-])-?\d{1,3}\.\d{4,8}, ?-?\d{1,3}\.\d{4,8}(?!\w|[.,]\d)",
    "feet and inches": r"(?<![\w'])\d'\d{1,2}\"(?!\w)",
    "ranges and scores": (  # a range of times has am or pm
        r"(?<![\w.,:/$%-])\d{1,4}[-\u2013]\d{1,4}(?![\w%-]|[.,:/]\d| ?[ap]\.?m(?!\w))"
    ),
    "flights": r"(?<![\w-])(?:3U|4U|5J|6E|7C|9W|B6|F9|G9|S7|U2|W6) \d{3,4}(?![\w%]|[.,:]\d)",
    "codes of banks": r"(?:(?<=\bBIC )|(?<=\bBIC: )|(?<=\bSWIFT: ))[A-Z]{8}(?:[A-Z]{3})?(?!\w)",
    "acronyms after their words": r"(?<=[a-z] \()[A-Z]{2,6}(?=\))",
    "formulas": r"(?<!\w)[A-Za-z]{1,3}[\u00b2\u00b3\u2070-\u2089]\w{0,20}",
    "numbers of parts": r"(?<![\w.,$-])\d{1,2}[abc](?![\w/-])",
    "Roman numerals": (
        r"(?<=[a-z] )(?<![Ww]ar )(?<!\ba )(?<!\ban )(?<!\bon )(?<!\bthe )"
        r"(?:II|III|IV|VI{1,3}|IX|X[IV]{0,4}|XX[IV]{0,4})(?!\w)"
    ),
    "rules": r"[-=*_\u2013\u2014]{4,}|\.{5,}|(?<![\w.])\.{4}",  # and dot leaders; `Wait.... what?` has an ellipsis
    "codes": rf"(?<![$\u20ac\u00a3]){_NO_CODE}{CODE}",
}
"""What models that have learned codes copy as well; earlier kinds take precedence."""

HINT = r"[^\w\s,.'\u2019\"\u201c\u201d!?;:-]|[\d_]|[.]\w|[-.]{2}|(?:^|\s)-\w|-[A-Z]\b|[:;]\S|[A-Za-z][A-Z]|\bX\b|file\b"
"""What a line has that has any of these: digits, marks that sentences lack, and capitals after other letters."""
