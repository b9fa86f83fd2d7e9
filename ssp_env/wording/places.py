"""Countries with their people, and regions that stand behind a town's name."""

from __future__ import annotations

_COUNTRIES = """
    usa|american|america|us|united states of america
    uk|british|britain|great britain|briton
    ussr|soviet|soviet russia
    netherlands|dutch|holland|dutchman
    south korea|south korean|republic of korea|korea south
    north korea|north korean|democratic peoples republic of korea|korea north
    china|chinese|peoples republic of china|prc|pr china
    taiwan|taiwanese|republic of china
    czech republic|czech|czechia
    united arab emirates|emirati|uae
    ivory coast|ivorian|cote d ivoire
    democratic republic of congo|drc|dr congo|congo kinshasa
    myanmar|burmese|burma
    iran|iranian|persia|persian|islamic republic of iran
    russia|russian|russian federation
    france|french|frenchman
    germany|german|federal republic of germany
    england|english|englishman
    scotland|scotish|scotsman|scot|scots
    wales|welsh|welshman
    ireland|irish|republic of ireland|irishman
    italy|italian
    spain|spanish|spaniard
    portugal|portuguese
    greece|greek
    turkey|turkish|turkiye|turk
    poland|polish|pole
    sweden|swedish|swede
    norway|norwegian
    denmark|danish|dane
    finland|finnish|finn
    iceland|icelandic|icelander
    switzerland|swiss
    austria|austrian
    belgium|belgian
    hungary|hungarian
    romania|romanian
    bulgaria|bulgarian
    serbia|serbian|serb
    croatia|croatian|croat
    slovenia|slovenian|slovene
    slovakia|slovak|slovakian
    ukraine|ukrainian
    belarus|belarusian
    lithuania|lithuanian
    latvia|latvian
    estonia|estonian
    albania|albanian
    north macedonia|macedonian|macedonia
    bosnia and herzegovina|bosnian|bosnia
    cyprus|cypriot
    malta|maltese
    luxembourg|luxembourgish
    georgia|georgian
    armenia|armenian
    azerbaijan|azerbaijani
    kazakhstan|kazakh
    uzbekistan|uzbek
    afghanistan|afghan
    pakistan|pakistani
    india|indian
    bangladesh|bangladeshi
    sri lanka|sri lankan|ceylon
    nepal|nepali|nepalese
    thailand|thai
    vietnam|vietnamese
    cambodia|cambodian
    laos|laotian
    malaysia|malaysian
    singapore|singaporean
    indonesia|indonesian
    philippines|filipino|philippine
    japan|japanese
    mongolia|mongolian
    israel|israeli
    iraq|iraqi
    syria|syrian
    lebanon|lebanese
    jordan|jordanian
    saudi arabia|saudi|saudi arabian
    kuwait|kuwaiti
    qatar|qatari
    yemen|yemeni
    egypt|egyptian
    libya|libyan
    tunisia|tunisian
    algeria|algerian
    morocco|morocan
    sudan|sudanese
    ethiopia|ethiopian
    kenya|kenyan
    uganda|ugandan
    tanzania|tanzanian
    rwanda|rwandan
    nigeria|nigerian
    ghana|ghanaian
    senegal|senegalese
    mali|malian
    cameroon|cameroonian
    angola|angolan
    zambia|zambian
    zimbabwe|zimbabwean|rhodesia
    south africa|south african
    namibia|namibian
    canada|canadian
    mexico|mexican
    cuba|cuban
    jamaica|jamaican
    haiti|haitian
    dominican republic|dominican
    puerto rico|puerto rican
    guatemala|guatemalan
    nicaragua|nicaraguan
    panama|panamanian
    colombia|colombian
    venezuela|venezuelan
    ecuador|ecuadorian
    peru|peruvian
    bolivia|bolivian
    brazil|brazilian
    chile|chilean
    argentina|argentine|argentinian
    uruguay|uruguayan
    paraguay|paraguayan
    australia|australian
    new zealand|new zealander
    fiji|fijian
    hawaii|hawaiian|kingdom of hawaii
    oman|omani
    korea|korean
    bahrain|bahraini
    palestine|palestinian|state of palestine
    moldova|moldovan
    kyrgyzstan|kyrgyz
    tajikistan|tajik
    turkmenistan|turkmen
    maldives|maldivian
    bhutan|bhutanese
    brunei|bruneian
    east timor|timorese|timor leste
    papua new guinea|papua new guinean
    samoa|samoan
    tonga|tongan
    honduras|honduran
    el salvador|salvadoran|salvadorean
    costa rica|costa rican
    belize|belizean
    guyana|guyanese
    suriname|surinamese
    trinidad and tobago|trinidadian|trinidad
    barbados|barbadian|bajan
    bahamas|bahamian
    greenland|greenlandic|greenlander
    botswana|motswana
    mozambique|mozambican
    malawi|malawian
    madagascar|malagasy
    somalia|somali
    eritrea|eritrean
    burundi|burundian
    gabon|gabonese
    chad|chadian
    burkina faso|burkinabe
    togo|togolese
    benin|beninese
    liberia|liberian
    sierra leone|sierra leonean
    guinea|guinean
    gambia|gambian
    mauritania|mauritanian
    mauritius|mauritian
    eswatini|swazi|swaziland
    montenegro|montenegrin
    kosovo|kosovar
    yugoslavia|yugoslav
    czechoslovakia|czechoslovak
    monaco|monegasque
    andorra|andorran
    prussia|prussian
    ottoman empire|ottoman
"""

_STATES = (
    "alabama al,alaska ak,arizona az,arkansas ar,california ca,colorado co,connecticut ct,"
    "delaware de,florida fl,georgia ga,hawaii hi,idaho id,illinois il,indiana in,iowa ia,kansas ks,"
    "kentucky ky,louisiana la,maine me,maryland md,massachusetts ma,michigan mi,minnesota mn,"
    "mississippi ms,missouri mo,montana mt,nebraska ne,nevada nv,new hampshire nh,new jersey nj,"
    "new mexico nm,new york ny,north carolina nc,north dakota nd,ohio oh,oklahoma ok,oregon or,"
    "pennsylvania pa,rhode island ri,south carolina sc,south dakota sd,tennessee tn,texas tx,"
    "utah ut,vermont vt,virginia va,washington wa,west virginia wv,wisconsin wi,wyoming wy,"
    "district of columbia dc,ontario on,quebec qc,british columbia bc,alberta ab,manitoba mb,"
    "saskatchewan sk,nova scotia ns,new brunswick nb,newfoundland nl,new south wales nsw,"
    "victoria vic,queensland qld,western australia wa,south australia sa,tasmania tas"
)
STATE_COUNTRY: dict[str, str] = {
    entry.rpartition(" ")[0]: "usa" if at < 51 else "canada" if at < 60 else "australia"
    for at, entry in enumerate(_STATES.split(","))
} | dict.fromkeys(("england", "scotland", "wales", "northern ireland"), "uk")
"""The country of a state or province."""

_OTHER_REGIONS = (
    "northern ireland,europe,asia,africa,north america,south america,oceania,central america,"
    "middle east,scandinavia,bavaria,saxony,hesse,prussia,lombardy,tuscany,sicily,sardinia,"
    "catalonia,andalusia,normandy,brittany,provence,crimea,siberia,kashmir,punjab,bengal,"
    "west bengal,maharashtra,tamil nadu,kerala,karnataka,gujarat,uttar pradesh,hawaii,bermuda,"
    "hong kong,greenland,tibet,galicia,bohemia,moravia,flanders,wallonia,ulster,leinster,munster,"
    "connacht,yorkshire,kent,essex,sussex,surrey,devon,cornwall,dorset,hampshire,norfolk,suffolk,"
    "lancashire,cheshire,cumbria,durham,derbyshire,lincolnshire,oxfordshire,cambridgeshire,"
    "gloucestershire,somerset,wiltshire,berkshire,buckinghamshire,hertfordshire,staffordshire,"
    "warwickshire,worcestershire,shropshire,northumberland,leicestershire,nottinghamshire,"
    "merseyside,greater manchester,west midlands,east sussex,west sussex,north yorkshire,"
    "west yorkshire,south yorkshire,ottoman empire,roman empire,russian empire,austria hungary,"
    "austrian empire,holy roman empire,austro hungarian empire,german empire,british india"
)


def _same_country() -> dict[str, str]:
    same: dict[str, str] = {}
    for line in _COUNTRIES.split("\n"):
        first, *others = line.strip().split("|")
        same |= {name: first for name in (first, *others) if name}
    return same


COUNTRY: dict[str, str] = _same_country()
"""A country by its other names and the name of its people, all in keys of words."""

COUNTRY_NAMES: frozenset[str] = frozenset(
    line.strip().split("|")[0] for line in _COUNTRIES.split("\n") if line.strip()
)
PEOPLES: frozenset[str] = frozenset(
    name
    for line in _COUNTRIES.split("\n")
    for name in line.strip().split("|")[1:2]
    if name
)  # fmt: skip
"""Names of peoples, which stand before a name ("American singer ...")."""

STATE: dict[str, str] = {
    key: name
    # Of two with one abbreviation, the first one has it.
    for name, _, short in (entry.rpartition(" ") for entry in reversed(_STATES.split(",")))
    for key in (name, short)
}
"""A state or province by its name and its postal abbreviation."""

REGIONS: frozenset[str] = frozenset(STATE) | COUNTRY_NAMES | frozenset(_OTHER_REGIONS.split(","))
"""What may stand behind a town's name, after a comma."""
REGIONS |= {"america", "great britain", "britain", "holland", "czechia", "persia", "burma"}

_CITIES = (
    "cologne|koln,munich|munchen,nuremberg|nurnberg,hanover|hannover,brunswick|braunschweig,"
    "vienna|wien,rome|roma,florence|firenze,venice|venezia,milan|milano,turin|torino,"
    "naples|napoli,genoa|genova,padua|padova,mantua|mantova,leghorn|livorno,lisbon|lisboa,"
    "seville|sevilla,marseille|marseilles,lyon|lyons,dunkirk|dunkerque,prague|praha,"
    "warsaw|warszawa,cracow|krakow,moscow|moskva,kyiv|kiev,kharkiv|kharkov,lviv|lvov,odesa|odessa,"
    "copenhagen|kobenhavn,gothenburg|goteborg,the hague|den haag,antwerp|antwerpen,"
    "brussels|bruxelles|brussel,ghent|gent,bruges|brugge,geneva|geneve|genf,basel|basle,bern|berne,"
    "athens|athina,bucharest|bucuresti,belgrade|beograd,beijing|peking,guangzhou|canton,"
    "nanjing|nanking,chongqing|chungking,tianjin|tientsin,mumbai|bombay,kolkata|calcutta,chennai|madras,yangon|rangoon,istanbul|constantinople,"
    "mecca|makkah,tehran|teheran,cairo|al qahirah,ulaanbaatar|ulan bator"
)
CITY: dict[str, str] = {
    name: names.partition("|")[0] for names in _CITIES.split(",") for name in names.split("|")
}
"""Names of cities at home and abroad, each with its English one."""

_KNOWN_CITIES = (
    "paris london rome athens berlin madrid vienna moscow dublin lisbon florence venice naples "
    "milan st-petersburg cairo delhi toronto lima melbourne manchester oxford bristol glasgow "
    "edinburgh hamburg warsaw geneva stockholm oslo amsterdam brussels prague budapest bucharest "
    "istanbul alexandria damascus beirut jerusalem bethlehem baghdad tehran tokyo kyoto beijing "
    "shanghai mumbai kolkata sydney montreal havana bogota santiago buenos-aires marseille lyon"
)
_THEIR_COUNTRIES = (
    "france uk italy greece germany spain austria russia ireland portugal italy italy italy "
    "italy russia egypt india canada peru australia uk uk uk uk "
    "uk germany poland switzerland sweden norway netherlands belgium czech-republic hungary "
    "romania "
    "turkey egypt syria lebanon israel israel iraq iran japan japan china "
    "china india india australia canada cuba colombia chile argentina france france"
)
CITY_COUNTRY: dict[str, str] = {
    city.replace("-", " "): country.replace("-", " ")
    for city, country in zip(_KNOWN_CITIES.split(), _THEIR_COUNTRIES.split(), strict=True)
}
"""Cities that everybody thinks of first when their name stands alone, and their countries."""
