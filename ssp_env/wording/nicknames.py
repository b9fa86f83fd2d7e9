"""First names, with their short forms and their forms in other languages."""

from __future__ import annotations

import re

from ssp_env.wording.words import words

_NICKNAMES = """
    william bill will billy willie liam|robert bob rob bobby robbie bert
    richard dick rick rich ricky|james jim jimmy jamie jem|john jack johnny jon
    joseph joe joey josef jozef
    charles charlie chuck chas|thomas tom tommy|michael mike mick mickey
    edward ed eddie ted teddy ned|theodore ted teddy theo|henry harry hank hal|george georgie
    francis frank frankie|franklin frank|samuel sam sammy|benjamin ben benny|daniel dan danny
    david dave davy|donald don donnie|kenneth ken kenny|ronald ron ronnie
    lawrence larry laurence|leonard len lenny leo|leo lev
    stephen steve steven stevie|andrew andy drew
    anthony tony|gregory greg|jeffrey jeff geoffrey geoff|matthew matt|nicholas nick nicky
    patrick pat paddy|peter pete|philip phil phillip|raymond ray|timothy tim|vincent vince
    walter walt|alexander alex alec sandy|albert al bert|alfred al fred alf|arthur art
    frederick fred freddie frederic|gerald gerry jerry|gerard gerry|harold harry hal|jacob jake
    alexander alexandre alejandro alessandro|rafael raf rafa|mikhail michail mihail mikhael
    jonathan jon|joshua josh|christopher chris kit|douglas doug|eugene gene|martin marty
    nathaniel nat nathan|reginald reggie reg|rodney rod|russell russ|stanley stan|terence terry
    victor vic|zachary zach zack|abraham abe|augustus gus|bernard bernie|calvin cal
    clifford cliff|dominic dom|edmund ed ned|maximilian max|massimiliano max|mitchell mitch
    norman norm|oliver ollie|oscar ozzie|randolph randy|roland rollie|sylvester sly|tobias toby
    wesley wes|elizabeth liz beth betty eliza lizzie bess libby lilibet
    katherine kate kathy katie kay catherine cathy katharine kathryn catharine
    margaret maggie meg peggy madge marge|mary molly polly|dorothy dot dorothea
    susan sue susie susanna|patricia pat patty trish|barbara barb babs|deborah debbie deb debra
    jennifer jen jenny|jessica jess jessie|judith judy|kimberly kim|linda lin|martha marty patsy
    nancy nan|pamela pam|rebecca becky|sandra sandy|sarah sally sadie|teresa terry theresa tess
    victoria vicky tori|virginia ginny|abigail abby|alexandra alex sandra|amanda mandy
    christina chris tina christine|cynthia cindy|eleanor ellie nell|frances fran fanny
    gertrude trudy|helen nell|jacqueline jackie|josephine jo josie|rosemary rose|stephanie steph
    suzanne sue|anne ann anna annie|vanessa nessa
    muhammad mohammed mohamed mohammad muhammed|hussein husain hussain husayn|ahmed ahmad
    omar umar|osama usama|yusuf youssef yousef|khalid khaled|abdullah abdallah|ibrahim ebrahim
    mustafa mustapha|hassan hasan|pyotr piotr petr peter pjotr|fyodor feodor fedor fjodor
    sergei sergey sergej|dmitri dmitry dimitri dmitriy|alexei alexey aleksei aleksey
    nikolai nikolay nikolaj|andrei andrey andrej|yuri yury yuriy juri
    alexander aleksandr alexandr aleksander|yevgeny evgeny yevgeni evgeni|grigori grigory
    vasily vasili vassily|leonid leonyd|vladimir wladimir|boris borys|tatiana tatyana
    natalia natalya|olga olha|sofia sophia sofya|maria mariya marya|catherine yekaterina ekaterina
    erik eric|karl carl|nicolas nicholas nikolas|marc mark|lukas lucas luke|johann johan
    friedrich frederick|philippe philip|etienne stephen
"""


_ROYAL = """
    nicholas nikolai nicolae|william wilhelm willem guillaume|john juan jean johann giovanni joao
    ivan jan|charles carlos karl carl carlo|philip felipe philippe|ferdinand fernando
    henry enrique heinrich henri|peter pedro pyotr|louis luis ludwig lajos|frederick friedrich
    joseph jose josef|francis franz francisco francois|alexander aleksandr|catherine ekaterina
    paul paulus pablo|leopold leopoldo|albert alberto|victor vittorio|james jaime
"""
"""Names of rulers at home and abroad; other people keep theirs."""


def _full_names(listed: str) -> dict[str, frozenset[str]]:
    """The names that each name may stand for, all in keys of words."""
    full: dict[str, set[str]] = {}
    for entry in re.split(r"[|\n]", listed):
        names = [word.key for name in entry.split() for word in words(name)]
        for name in names:
            full.setdefault(name, set()).add(names[0])
    return {name: frozenset(others) for name, others in full.items()}


FULL = _full_names(_NICKNAMES)
"""Names that each name may stand for."""
RULERS = _full_names(_ROYAL)
"""The same for rulers at home and abroad."""
FIRST_NAMES: frozenset[str] = frozenset(FULL)
"""First names that have or are nicknames, and with them a share of all first names."""
