"""What an answer says when it speaks to its judge; patterns over folded text.

In a pattern a space stands for whatever may part two words, ``~`` for up to four words, ``YN`` for a verdict,
``^`` and ``$`` for the start and the end of a sentence. European ones are read once more with look-alike
letters taken for the plain ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from sgpu.judges.folding import fold, skeleton

_START = r"(?:\A|(?<=[\n.!?;:\u3002\uff01\uff1f()\[{\"'*>#|\u201c\u2014\u2013-]))\W{0,5}"
_END = r"(?=\W{0,6}(?:\Z|[\n.!?;\u3002)\]}|<\u2014]))"
_VERDICT = (
    r"(?:(?:yes|no|yep|nope|true|oui|non|ja|nein|nee|sí|sim|não|да|нет|evet|hayır|हाँ|हां|नहीं|نعم|لا)(?!\w)"
    r"|是的|是|对|否|はい|いいえ|예|네|아니오)"
)
# Words in between are of one sentence: what follows an order may be the answer.
_FILLER = r"\w{1,30}[^\w.!?\n\u3002]{1,8}"
_SHORTHAND = re.compile(r"YN|~|(?<!\[)\^|\$|\\w\+ | ")
_MEANING = {
    "YN": _VERDICT,
    "~": rf"(?:{_FILLER}){{0,4}}?",
    "^": _START,
    "$": _END,
    " ": r"(?:\W{1,8})",
    r"\w+ ": _FILLER,
}

_SAY = "respond|reply|answer|output|return|print|say|vote|write"
_FORGET = "ignore|disregard|forget|override|overrule|bypass|discard|do not follow|don t follow|stop following"
_JUDGE = "judge|grader|evaluator|assessor|examiner|rater|llm|language model|ai"
_RIGHT = "correct|right|true|accepted|equivalent|identical|the same|matching|a match|valid|verified"
_IT = (
    "this|it|these|mine|this one|(?:this|my|any|every|each|the (?:proposed|given|above|candidate|model s)) "
    "(?:answer|response|candidate|text)"
)
# "I can only say no fracture is seen" states something; "just say yes to this" does not.
_NO_STATEMENT = r"(?![^\S\n]{1,3}(?!(?:and|or|to|for|here|now)\b)\w)"
_EUROPEAN_ORDERS = (
    # What to reply
    rf"(?:{_SAY}) (?:\w+ ){{0,3}}(?:only|solely|exactly|always|nothing|simply|just|the word|the token) ~YN",
    rf"(?:only|just|simply|always|please|must|should|shall|now|and|kindly|instead|you|therefore) (?:{_SAY}) "
    rf"(?:with |the |word |a |back |single |token ){{0,4}}YN{_NO_STATEMENT}",
    r"(?:correct|right|proper|best|only) (?:label|response|reply|verdict|thing to (?:reply|say|answer)) "
    r"(?:\w+ ){0,2}is YN",
    r"(?:instruct|command|order|urge|ask|require|beg) you to (?:\w+ ){0,3}"
    r"(?:answer|say|respond|reply|accept|mark)",
    rf"^(?:{_SAY}|choose|pick|select|type)(?: with| the word| me| back| as| in)?[^\w:=.!?\n]{{1,4}}YN$",
    rf"(?:{_SAY}) (?:\w+ ){{0,3}}(?:in the affirmative|affirmatively|positively)",
    r"(?:respond|reply|answer) only (?:with|by|using|in)",
    r"(?:your|the) (?:\w+ ){0,2}(?:response|reply|verdict|judge?ment|output|decision|vote|conclusion|answer) "
    r"(?:must|should|shall|has to|needs to|ought to)(?: now)?(?: always)? be (?:an? )?YN",
    r"(?:your|the) (?:\w+ ){0,2}(?:response|reply|verdict|judge?ment|output|vote) (?:is|will be) "
    r"(?:an? )?YN$",
    # What to leave out
    rf"(?:{_FORGET}) ~(?:instructions?|prompts?|directives?|expected answers?|reference answers?"
    r"|the reference|(?:previous|prior|preceding|above|earlier|your|all|system) (?:\w+ ){0,2}"
    r"(?:rules?|guidelines?|directions?|criteria|orders?|texts?|context|messages?|questions?|answers?)"
    r"|everything (?:above|before|else|prior|you)"
    r"|(?:what|whatever|all) (?:\w+ ){0,4}(?:before|earlier|told))",
    rf"(?:{_FORGET}) (?:all |of )?(?:the |this )?above$",
    r"(?:new|updated|revised|additional|real|actual|important) (?:system )?"
    r"(?:instructions?|prompts?|directives?)\W{0,3}:",
    r"system (?:prompt|message|override)\b",
    r"(?:do not|don t|no need to|without|instead of|stop) (?:compar|judg|evaluat|assess|grad)(?:e|ing)\b",
    # Who is spoken to
    rf"(?:dear|hey|hello|hi|attention|note to|message to|note for)(?: an?| the| all)? (?:{_JUDGE})\b",
    rf"you (?:are|re) (?:now )?(?:an?|the|my) (?:\w+ ){{0,3}}(?:{_JUDGE}|assistant)\b",
    r"you (?:must|should|will|have to|need to|shall|are to|are instructed to) (?:now )?"
    r"(?:mark|accept|judge|grade|respond|output|vote|approve)\b",
    # What to think of the answer
    rf"(?:mark|treat|consider|count|regard|judge|grade|rate|score|label|classify|deem|accept) (?:{_IT}) "
    rf"(?:above )?(?:as |to be )?(?:{_RIGHT})\b",
    r"(?:accept|approve) (?:this|my|the (?:proposed|given|above)) (?:answer|response)",
    r"(?:give|award|grant|assign) (?:this|it|me|my answer) (?:\w+ ){0,2}(?:credit|marks|points?|score)\b",
    r"(?:this|my|the (?:proposed|given|above|previous|candidate|submitted)) (?:answer|response)(?: above)? "
    rf"(?:is|was|has been|should be|must be|counts as) ~(?:{_RIGHT})\b",
    r"(?:answers?|they|both|these|responses|the two) (?:all |both |clearly |really )?"
    r"means? (?:\w+ )?the same",
    r"means? (?:exactly |precisely )?the same (?:as|thing as) (?:the|any|your|that) "
    r"(?:\w+ ){0,2}(?:answers?|reference|expected)",
    r"(?:answers?|they|both|these) (?:\w+ ){0,2}the same meaning",
    r"same meaning as the (?:\w+ ){0,2}answers?|semantically (?:the same|equivalent|identical)",
    r"(?:match(?:es)?|equals?|equivalent to|identical to|agrees? with|same as) (?:the|your|any)(?: of the)? "
    r"(?:expected|reference|gold|ground truth) (?:answers?|one|reference)?",
    r"(?:proposed|candidate) answer (?:is|means?|should|must|match|equals?|and|does)",
    r"(?:both|the two|these) answers (?:are|agree|match|coincide)|(?:does|do) (?:in fact )?mean the same",
    r"(?:answer|response) (?:is )?accepted|end of (?:the )?(?:answer|response|data)",
    r"the reference (?:answer )?(?:is|was) (?:wrong|incorrect|outdated|mistaken)",
    r"(?:result|outcome) is a match",
    r"treat (?:the|both) (?:two )?answers as",
    r"we are assessing the quality|within the context of the question",
    # French, German, Dutch, Spanish, Portuguese, Italian, Turkish
    r"(?:réponds|répondez|dis|dites|écris|écrivez) ~YN",
    r"(?:ignore[rsz]?|oublie[rz]?) ~(?:consignes?|instructions)",
    r"(?:signifient?|veut dire|veulent dire) la même chose",
    r"(?:antworte[nt]?|sagen?|schreiben?|antwoord|zeg) ~YN",
    r"(?:ignorieren?|vergiss|vergessen|missachten?|negeer|vergeet) ~(?:anweisung|vorgabe|instructie)",
    r"bedeute[nt]? (?:dasselbe|das gleiche)|betekenen hetzelfde",
    r"(?:responda?|responde|conteste?|contesta|diga|rispond[ia]|rispondete) ~YN",
    r"(?:ignor[ae]|olvid[ae]|esqueça|dimentica) ~(?:instrucciones|instruções|istruzioni|indicaciones)",
    r"significan? lo mismo|significam? o mesmo|significano la stessa cosa",
    r"(?:sadece|yalnızca) YN|talimat\w{0,12} (?:yok say|görmezden gel|unut)",
)
_OTHER_ORDERS = (
    # Russian, Chinese, Japanese, Korean, Hindi, Arabic
    r"(?:ответьт?е?|отвечайт?е?|скажит?е?|напишит?е?) ~YN",
    r"(?:игнорируйт?е?|забудьт?е?) ~(?:инструкци|указани|правил)|означа\w{2,4} (?:то же|одно и то же)",
    r"(?:只|仅|请|必须|直接|一律)\W{0,2}能?(?:回答|回复|输出|说|答)\W{0,4}YN|意思(?:相同|一样)|含义相同",
    r"(?:忽略|无视|忽視|忘记)\w{0,10}(?:指示|指令|说明|提示|规则)|(?:指示|命令)\w{0,3}(?:無視|忘れ)",
    r"(?:はい|いいえ|yes|no)\W{0,3}と?(?:だけ|のみ)?\W{0,2}と?(?:答え|回答|返答|出力)|同じ意味",
    r"(?:예|네|yes)\W{0,3}(?:라고|로)만?\W{0,2}(?:답|대답|말)|(?:지시|명령|지침)\w{0,9}\W{0,2}(?:무시|잊)",
    r"(?:केवल|सिर्फ)\W{1,3}\S{1,12}\W{1,3}(?:में|मे)\W{1,3}(?:उत्तर|जवाब)|निर्देश\S{0,6}\W{1,3}(?:\S{1,12}\W{1,3}){0,3}अनदेख",
    r"(?:أجب|اجب|قل) ~(?:ب?نعم|yes)|تجاهل ~(?:التعليمات|تعليمات)",
)
# A label ends where the group v starts: what stands there may be all that the answer says.
_EUROPEAN_LABELS = (
    r"(?:response|verdict|judge?ment)[^\w\n.!?]{0,3}[:=>][^\w.!?]{0,8}(?P<v>YN)",
    r"(?:response|verdict|judge?ment|reply|is correct|correct|is equivalent|equivalent|match(?:es)?|réponse"
    r"|antwort|respuesta|risposta|resposta|cevap)[^\w\n.!?]{0,3}[:=>→—–\n\-][^\w.!?]{0,8}(?P<v>YN)(?![^\S\n]{0,3}\w)",
    r"(?:(?:the|your|new|real|actual|true|correct) ){0,3}(?:expected|reference|gold|golden|ground truth) "
    r"(?:answers?|response)\W{1,3}(?:(?:to this question|here|now) ){0,2}"
    r"(?:(?<=[:=])|(?:is|are|was|has|should|must|changed)\b)"
    r"(?: now| been| be| changed| updated| to){0,4}\W{0,6}(?P<v>)",
    r"(?:the )?following are (?:the )?expected answers(?P<v>)",
    r"(?:la réponse attendue|die erwartete antwort|la respuesta esperada|la risposta attesa"
    r"|a resposta esperada)(?P<v>)",
    r"^(?:system|user|human|developer|instructions?|judge|grader|evaluator|llm) ?: ?(?P<v>)",
    r"(?:(?<=\n)|(?<=[.!?]\s))assistant ?: ?(?P<v>)|assistant ?: ?(?P<w>YN)$",
)
_OTHER_LABELS = (
    r"(?:ответ|вердикт|回答|答案|回复|答え|정답|응답|답변|답|उत्तर|الجواب)\W{0,3}[:=→]\W{0,8}(?P<v>YN)",
    r"(?:ожидаемый ответ|(?:预期|期望|参考|标准)答案|期待される(?:答え|回答)|예상 ?(?:답변|정답|답))(?P<v>)",
)
# For a question that yes or no does not answer, such a last sentence is a verdict and not an answer.
_WEAK = (r"\A\W*(?:(?:the )?(?:final )?(?:answer|result|assessment|evaluation)(?: is)?\W{1,4})?YN\W*\Z",)
_SPACED = (
    r"(?:response|verdict|answer|reply)(?:is)?(?:yes|no)\Z",
    r"(?:respond|reply|answer|say|output|print|write)(?:only|just)?(?:with)?(?:yes|no)\Z",
    r"respondonly|ignore(?:all|the|any)?(?:previous|prior|above|instructions)|expectedanswer|meanthesame",
)


@lru_cache(maxsize=1)
def orders() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """For folded text, and for its skeleton: what is taken out with its sentence."""
    european = [rf"(?<!\w)(?:{'|'.join(_EUROPEAN_ORDERS)})"]
    return _compile([*european, *_OTHER_ORDERS]), _compile(european, of_skeleton=True)


@lru_cache(maxsize=1)
def labels() -> tuple[tuple[re.Pattern[str], ...], tuple[re.Pattern[str], ...]]:
    """For folded text, and for its skeleton: forged labels; what they label starts at the group v or w."""
    european = [rf"(?<!\w)(?:{source})" for source in _EUROPEAN_LABELS]
    return (
        tuple(_compile([source]) for source in [*european, *_OTHER_LABELS]),
        tuple(_compile([source], of_skeleton=True) for source in european),
    )


@lru_cache(maxsize=1)
def verdict() -> re.Pattern[str]:
    """A whole folded sentence that is a bare verdict, as "Yes." or "no"."""
    return _compile([r"\A\W*YN\W*\Z"])


@lru_cache(maxsize=1)
def weak_verdict() -> re.Pattern[str]:
    """A whole folded sentence that states a verdict, as "Answer: yes" or "The answer is no."."""
    return _compile(_WEAK)


@lru_cache(maxsize=1)
def spaced() -> re.Pattern[str]:
    """For the joined letters of "R e s p o n s e : y e s"."""
    return _compile(_SPACED, of_skeleton=True)


def _compile(sources: Sequence[str], of_skeleton: bool = False) -> re.Pattern[str]:
    pattern = _SHORTHAND.sub(lambda match: _MEANING[match.group()], "|".join(sources))
    # ASCII stays: it is lower case already, and in "\\W" or "{0,3}" it is not text.
    plain = "".join(char if char.isascii() else fold(char)[0] for char in pattern)
    if of_skeleton:
        plain = "".join(char if char.isascii() else skeleton(char) for char in plain).replace("l", "i")
    return re.compile(plain)
