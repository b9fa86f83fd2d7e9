"""Units of measure and currencies, by the ways in which they are written."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure: amounts are the same where ``value * factor + offset`` is."""

    dimension: str
    factor: float
    offset: float = 0.0


def _units() -> dict[str, Unit]:
    table: dict[str, Unit] = {}

    def add(dimension: str, names: str, factor: float, offset: float = 0.0) -> None:
        for name in names.split(","):
            table[name.strip()] = Unit(dimension, factor, offset)

    add("length", "m,meter,meter high,meter tall,meter long,meter above sea level", 1.0)
    add("length", "km,kilometer", 1e3)
    add("length", "cm,centimeter", 1e-2)
    add("length", "mm,millimeter", 1e-3)
    add("length", "mi,mile", 1609.344)
    add("length", "ft,foot,feet", 0.3048)
    add("length", "in,inch", 0.0254)
    add("length", "yd,yard", 0.9144)
    add("length", "nautical mile,nmi", 1852.0)
    add("length", "ly,light year,lightyear", 9.4607e15)
    for square in ("square", "sq"):
        add("area", f"{square} km,{square} kilometer,km2,km 2,km^2", 1e6)
        add("area", f"{square} m,{square} meter,m2,m 2", 1.0)
        add("area", f"{square} mi,{square} mile,mi2,mi 2", 2589988.11)
        add("area", f"{square} ft,{square} foot,{square} feet,ft2,ft 2", 0.09290304)
    add("area", "ha,hectare", 1e4)
    add("area", "acre", 4046.856)
    add("speed", "km per h,km per hr,kilometer per hour,km per hour,kph,kmh", 1 / 3.6)
    add("speed", "kilometer hour,km hour", 1 / 3.6)
    add("speed", "mph,mile per hour,mi per h,mile an hour,mile hour", 0.44704)
    add("speed", "km per s,kilometer per second", 1e3)
    add("speed", "mile per second,mi per s", 1609.344)
    add("speed", "m per s,meter per second,meter second", 1.0)
    add("speed", "kn,knot", 0.514444)
    add("mass", "kg,kilogram", 1.0)
    add("mass", "g,gram", 1e-3)
    add("mass", "mg,milligram", 1e-6)
    add("mass", "lb,pound,lbs", 0.45359237)
    add("mass", "oz,ounce", 0.0283495)
    add("mass", "t,tonne,metric ton,ton", 1e3)
    add("time", "s,sec,second", 1.0)
    add("time", "min,minute", 60.0)
    add("time", "h,hr,hour", 3600.0)
    add("time", "day", 86400.0)
    add("time", "week", 7 * 86400.0)
    add("time", "month", 2629746.0)
    add("time", "year,yr,year old", 31556952.0)
    add("time", "decade", 315569520.0)
    add("time", "millisecond,ms", 1e-3)
    add("temperature", "celsius,c,degree celsius,degree c,degree centigrade", 1.0)
    add("temperature", "fahrenheit,f,degree fahrenheit,degree f", 5 / 9, -160 / 9)
    add("temperature", "kelvin,k,degree kelvin", 1.0, -273.15)
    add("angle", "degree", 1.0)
    add("share", "percent", 1.0)
    add("volume", "l,liter", 1.0)
    add("volume", "ml,milliliter", 1e-3)
    add("volume", "gallon", 3.785411784)
    add("power", "w,watt", 1.0)
    add("power", "kw,kilowatt", 1e3)
    add("power", "mw,megawatt", 1e6)
    add("power", "gw,gigawatt", 1e9)
    add("power", "hp,horsepower", 745.7)
    add("frequency", "hz,hertz", 1.0)
    add("frequency", "khz,kilohertz", 1e3)
    add("frequency", "mhz,megahertz", 1e6)
    add("frequency", "ghz,gigahertz", 1e9)
    for power, (short, name) in enumerate(
        (("b", "byte"), ("kb", "kilobyte"), ("mb", "megabyte"), ("gb", "gigabyte"),
         ("tb", "terabyte"))
    ):  # fmt: skip
        add("data", f"{short},{name}", 1e3**power)
    add("dollar", "dollar,usd,usa dollar,american dollar,buck", 1.0)
    add("dollar", "cent", 0.01)
    add("euro", "euro,eur", 1.0)
    add("sterling", "gbp,pound sterling,british pound,quid", 1.0)
    add("yen", "yen,jpy,japanese yen", 1.0)
    add("rupee", "rupee,inr,indian rupee,r", 1.0)
    return table


UNITS = _units()
MONEY = frozenset({"dollar", "euro", "sterling", "yen", "rupee"})
