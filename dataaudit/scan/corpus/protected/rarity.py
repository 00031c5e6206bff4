"""Which words tell one short text from another: those that are neither short, nor numbers, nor common.

The lists are by hand: words of four letters and more that everyone writes every day, in English and, of function words
alone, in languages that are much written. A word of another language is taken as rare; where that is wrong, a common
phrase of eight words could be taken for a question of a set that is the same phrase.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache

from dataaudit.scan.kernels.normal import normalized

RARE_LETTERS = 4
"""Letters of a rare word, at least."""
_ENGLISH = """
able about above according account across action actually added after again against almost along already also although
always among amount another answer anyone anything area around asked away back based beautiful became because become
been before began begin being believe below best better between black body book both bring brought build built
business call called came cannot care case cause certain chance change child children choose city class clear close
cold come comes coming common company complete consider contain could country course create current data date days
deal death decide decided describe described different difficult does doing done dont door down during each early
earth easy either else email enough entire especially even evening ever every everyone everything exactly example
expect explain face fact fall family father favorite feel feeling felt field figure file final finally find fire first
five follow following follows food force form found four free friend friends from front full game general gets getting
give given gives goes going gone good great group grow half hand hands happen happened happening happens hard have
having head health hear heard heart heavy held hello help here high hold home hope hour hours house however human
hundred idea important include including information inside instead interest interesting into issue itself just keep
kind knew know known knows land language large last late later learn least leave left less letter level life light
like likely line list listen little live lives living local long longer look looked looking looks lost love made main
make makes making many matter maybe mean means meant meet member might mind minute minutes miss moment money month
months more morning most mother move much music must myself name named names near nearly need needed needs never news
next nice night nobody none north nothing notice number numbers often okay older once only open opened order other
others ourselves outside over page paper parents part parts past people perhaps period person phone picture piece
place places plan play played please point police possible power present pretty probably problem problems process
program provide public question questions quickly quite rather read ready real really reason recent recently remember
report rest result results return right road room rule said same says school second seem seemed seems seen send sense
sent sentence service several shall short should show shown shows side similar simple simply since single situation
size small some someone something sometimes soon sorry sort south speak special stand start started state statement
states stay step still stop stopped story street strong student students stuff such suddenly suppose sure system take
taken takes taking talk talking teacher tell tells than thank thanks that their them themselves then there therefore
these they thing things think thinking third this those though thought thousand three through time times today
together told tomorrow tonight took total towards tried true truth trying turn turned twice type types under
understand united until upon used useful user uses using usually value various very view visit wait waiting walk
walked want wanted wants watch water ways wear week weeks well went were west what whatever when where whether which
while white whole whom whose will wish with within without woman women word words work worked working works world
worse would write writing written wrong year years yellow yesterday young your yours yourself
"""
_OTHERS = """
aber alle allem allen aller alles also andere anderen auch beim bereits bist bitte dann dass dein deine denen dennoch
deren dich diese diesem diesen dieser dieses doch dort durch eine einem einen einer eines einmal etwas euch euer
ganz gegen geht gibt habe haben hallo hast hatte hatten heute hier hinter immer jede jeden jeder jedes jemand jetzt
kann kannst kein keine keinen konnen konnte leben lange machen mehr mein meine meinem meinen meiner menschen muss
mussen nach nicht nichts noch ohne oder schon sehr sein seine seinem seinen seiner seit sich sind soll sollte sondern
uber unser unsere unter viel viele vielleicht wann warum weil welche welchen welcher welches wenn werden wieder wird
wirklich wissen wollen worden wurde wurden zeit zwei zwischen ainsi alors apres aussi autre autres avant avec avez
avoir avons beaucoup bien bonjour cela celle celui cette ceux chaque chez chose comme comment contre dans depuis donc
dont encore entre etait etes etre faire fait faites fois homme jamais jour jours leur leurs lorsque maintenant mais
meme moins monde notre nous parce pendant personne peut peux plus plusieurs point pour pourquoi pouvez pouvoir quand
quel quelle quelles quels quelque quoi rien sans sera serait ses seulement soit sommes sont sous souvent suis sur
temps toujours tous tout toute toutes tres trop vers veut vie vient voici voir votre vous ahora algo alguien algunos
antes aqui asi aunque bueno cada casa como cosa cosas cual cuales cualquier cuando cuanto cuantos cuanta desde despues
dice dijo donde durante ella ellas ellos entonces entre eran eres esta estaba estado estan estar estas este esto estos
estoy favor formaaon gente gracias habia hace hacen hacer hacia hasta hola hombre hoy llama mejor menos
mientras misma mismo momento mucho muchas muchos mundo nada nadie nombre nosotros nunca otra otras otro otros para
parte pero personas poco podemos porque puede pueden puedo pues quien quiere saber sabe segun senor siempre sido
siendo sobre solo somos soy tambien tengo tenia tiempo tiene tienen toda todas todavia todo todos trabajo unas unos
usted vamos veces verdad vida agora ainda algum alguma anos aqui assim bem coisa coisas com dele deles depois dizer
essa esse esta estao estava estou fazer foram isso isto mais mesmo muito muitos nao nossa nosso numa pela pelo pode
podem porque pouco qual quando quantos quem sempre sendo sobre sou sua suas tambem tanto tempo tenho tinha todos tudo
uma umas vai vez voce voces abbiamo allora altri altro anche ancora avere bene casa come cosa cosi cui dalla dalle
dello della delle degli dopo dove dunque ecco erano essere fare fatto giorno gli grazie hanno invece loro mai meglio
mentre molti molto nella nelle nello niente noi nome nostra nostro nulla ogni oggi parte perche piu poco poi possono
potrebbe prima proprio puo qualche qualcosa qualcuno quale quali quando quanti quanto quella quelle quelli quello
questa queste questi questo quindi sempre senza sono sopra stata stato stati stesso sulla suoi tanto tempo troppo
tutta tutte tutti tutto uomo vita volta volte vuole andere alles alleen altijd anders bent beter daar daarom deze
dezelfde doen doet door drie echt eens eerst elke enkele gaan gaat geen goed graag haar hadden heeft hebben hebt heel
heet hier hoeveel iemand iets ieder iedereen jaar jullie kunnen komen laat maar maken meer mensen mijn minder moet
moeten naar niemand niet niets nodig nog nooit omdat onder onze over sommige steeds staat tegen terug tijd toch toen
tussen tweede uit vaak vandaag veel vind volgens voor waar waarom wanneer want waren weer weet welke werd werden wij
wordt worden zal zeer zelf zich zijn zoals zonder zou zullen bardzo bedzie byc byla bylo byly chce czas czego czemu
czesto czlowiek dlaczego dobrze dzis dzien gdzie gdy ich ile jako jakie jaki jaka jednak jego jest jestem jeszcze juz
kiedy kto ktora ktore ktory ludzie mial moze mozna musi niego nic nigdy oraz pan pani powiedzial przed przez przy rok
roku rzeczy sobie swoje tak takie takze teraz tego tej tylko tym wiec wiele wszystko zawsze
"""
_RUSSIAN = """
\u0431\u043e\u043b\u0435\u0435 \u0431\u0443\u0434\u0435\u0442 \u0431\u044b\u043b\u0430 \u0431\u044b\u043b\u0438
\u0431\u044b\u0442\u044c \u0432\u0435\u0441\u044c \u0432\u043c\u0435\u0441\u0442\u043e
\u0432\u043e\u043e\u0431\u0449\u0435 \u0432\u043e\u043f\u0440\u043e\u0441 \u0432\u0440\u0435\u043c\u044f
\u0432\u0441\u0435\u0433\u0434\u0430 \u0432\u0441\u0435\u0433\u043e \u0435\u0441\u043b\u0438 \u0435\u0441\u0442\u044c
\u0435\u0449\u0435 \u0436\u0438\u0437\u043d\u0438 \u0437\u0434\u0435\u0441\u044c \u0438\u043c\u0435\u043d\u043d\u043e
\u043a\u0430\u0436\u0434\u044b\u0439 \u043a\u0430\u043a\u0430\u044f \u043a\u0430\u043a\u0438\u0435
\u043a\u0430\u043a\u043e\u0439 \u043a\u043e\u0433\u0434\u0430 \u043a\u043e\u043d\u0435\u0447\u043d\u043e
\u043a\u043e\u0442\u043e\u0440\u0430\u044f \u043a\u043e\u0442\u043e\u0440\u043e\u0433\u043e
\u043a\u043e\u0442\u043e\u0440\u043e\u0435 \u043a\u043e\u0442\u043e\u0440\u043e\u0439
\u043a\u043e\u0442\u043e\u0440\u044b\u0435 \u043a\u043e\u0442\u043e\u0440\u044b\u0439 \u043a\u0440\u043e\u043c\u0435
\u043b\u044e\u0434\u0435\u0439 \u043b\u044e\u0434\u0438 \u043c\u0435\u0436\u0434\u0443 \u043c\u0435\u043d\u044f
\u043c\u043d\u043e\u0433\u043e \u043c\u043e\u0436\u0435\u0442 \u043c\u043e\u0436\u043d\u043e \u043d\u0430\u0434\u043e
\u043d\u0435\u0433\u043e \u043d\u0438\u0447\u0435\u0433\u043e \u043d\u0443\u0436\u043d\u043e \u043d\u0435\u0433\u043e
\u043e\u0434\u0438\u043d \u043e\u0447\u0435\u043d\u044c \u043f\u0435\u0440\u0435\u0434 \u043f\u043e\u0441\u043b\u0435
\u043f\u043e\u0442\u043e\u043c \u043f\u043e\u0442\u043e\u043c\u0443 \u043f\u043e\u0447\u0435\u043c\u0443
\u043f\u0440\u043e\u0441\u0442\u043e \u0440\u0430\u0437\u0430 \u0441\u0435\u0439\u0447\u0430\u0441
\u0441\u0435\u0433\u043e\u0434\u043d\u044f \u0441\u0435\u0431\u044f \u0441\u043a\u0430\u0437\u0430\u043b
\u0441\u043a\u043e\u043b\u044c\u043a\u043e \u0442\u043e\u043b\u044c\u043a\u043e \u0442\u0435\u0431\u044f
\u0442\u0435\u043f\u0435\u0440\u044c \u0442\u043e\u0433\u0434\u0430 \u0442\u043e\u0433\u043e \u0442\u043e\u0436\u0435
\u0442\u043e\u043b\u044c\u043a\u043e \u0443\u0436\u0435 \u0445\u043e\u0440\u043e\u0448\u043e \u0445\u043e\u0442\u044f
\u0447\u0435\u0433\u043e \u0447\u0435\u043b\u043e\u0432\u0435\u043a \u0447\u0435\u0440\u0435\u0437
\u0447\u0442\u043e\u0431\u044b \u044d\u0442\u043e\u0433\u043e \u044d\u0442\u043e\u0439 \u044d\u0442\u043e\u043c
\u044d\u0442\u043e\u0442
"""


@cache
def common_words() -> frozenset[str]:
    """Return the words that tell nothing, without accents."""
    return frozenset(f"{_ENGLISH} {_OTHERS} {_RUSSIAN}".split())


def num_rare(words: Iterable[str]) -> int:
    """Return how many different rare words there are; case and accents do not matter."""
    return len({folded for word in words if _is_rare(folded := _folded(word))})


def _is_rare(folded: str) -> bool:
    return len(folded) >= RARE_LETTERS and folded not in common_words() and not folded.isdecimal()


@lru_cache(maxsize=1 << 16)
def _folded(word: str) -> str:
    parts = normalized("NFKD", word.casefold())
    return "".join(part for part in parts if part.isalnum())
