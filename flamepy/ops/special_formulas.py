"""What inverse, hyperbolic and special functions are in words, for all devices: plain functions that formulas and rules call.

The rational approximations are Cephes' (Moshier 1989), that of the normal quantile is Wichura's (1988, algorithm AS 241). Of a number
whose first digits have to be exact, such as pi / 2, the first part fits into float32 and the second is the rest.
"""

from ..backend.formula.words import copysign, expm1, floor, log1p
from ..core.words import INF, NAN, abs, cos, erf, exp, log, maximum, minimum, rint, select, sin, sqrt

PI = 3.141592653589793
HALF_PI_HIGH, HALF_PI_LOW = 1.57079601287841796875, 3.1391647865048132117e-7


# ---- inverse trigonometric -------------------------------------------------------------------------------------------------
def atan_of(x):
    a = abs(x)
    far, middle = a > 2.414213562373095, a > 0.66
    t = select(far, -1.0, select(middle, a - 1.0, a)) / select(far, a, select(middle, a + 1.0, 1.0))
    z = t * t
    p = ((-8.750608600031904122785e-1 * z - 1.615753718733365076637e1) * z - 7.500855792314704667340e1) * z
    q = (((z + 2.485846490142306297962e1) * z + 1.650270098316988542046e2) * z + 4.328810604912902668951e2) * z
    p = (p - 1.228866684490136173410e2) * z - 6.485021904942025371773e1
    q = (q + 4.853903996359136964868e2) * z + 1.945506571482613964425e2
    share = select(far, 1.0, select(middle, 0.5, 0.0))  # of pi / 2
    return copysign(share * HALF_PI_HIGH + (share * HALF_PI_LOW + t * z * (p / q) + t), x)


def root_of(x):
    """sqrt(1 - x * x), precise near 1."""
    return sqrt((1.0 - x) * (1.0 + x))


def asin_of(x):
    return atan_of(x / root_of(x))


def acos_of(x):
    t = atan_of(root_of(x) / abs(x))
    return select(x < 0.0, PI - t, t)


def atan2_of(y, x):
    a, b = abs(y), abs(x)
    equal = a == b  # so are two zeros, and two infinities
    t = atan_of(select(equal, select(a == 0.0, 0.0, 1.0), a / b))
    return copysign(select(copysign(1.0, x) < 0.0, PI - t, t), y)


def hypot_of(a, b):
    a, b = abs(a), abs(b)
    top = maximum(a, b)
    r = minimum(a, b) / top
    return select((a == INF) | (b == INF), INF, select(top == 0.0, 0.0, top * sqrt(1.0 + r * r)))


# ---- hyperbolic ----------------------------------------------------------------------------------------------------------------
def cosh_of(x):
    e = exp(0.5 * x)  # half the way: 0.5 * exp(x) may fit where exp(x) does not
    return 0.5 * e * e + 0.5 / e / e


def sinh_of(x):
    a = abs(x)
    m = expm1(0.5 * a)
    e = 1.0 + m
    return copysign(0.5 * (m + select(m > 1e18, 1.0, m / e)) * (e + 1.0 / e), x)


def asinh_of(x):
    a = abs(x)
    far = a > 1e8  # log(2 * a), which overflows for none
    return copysign(log1p(select(far, a - 1.0, a + a * a / (1.0 + sqrt(a * a + 1.0)))) + select(far, 0.6931471805599453, 0.0), x)


def acosh_of(x):
    far, t = x > 1e8, x - 1.0
    y = log1p(select(far, t, t + sqrt(t * (x + 1.0)))) + select(far, 0.6931471805599453, 0.0)
    return select(x >= 1.0, y, NAN)


def atanh_of(x):
    a = abs(x)
    return copysign(0.5 * log1p(2.0 * a / (1.0 - a)), x)


# ---- the normal distribution --------------------------------------------------------------------------------------------------------
def erfc_of(x):
    """1 - erf(x), precise relative to itself: from 1 on exp(-x * x) times a rational function. x * x is not rounded before exp sees it."""
    a = abs(x)
    b = select(a > 30.0, 30.0, a)
    near = rint(16.0 * b) * 0.0625
    curve = exp(-near * near) * exp((near - b) * (near + b))
    p = ((2.46196981473530512524e-10 * b + 5.64189564831068821977e-1) * b + 7.46321056442269912687) * b + 4.86371970985681366614e1
    p = ((p * b + 1.96520832956077098242e2) * b + 5.26445194995477358631e2) * b + 9.34528527171957607540e2
    q = ((b + 1.32281951154744992508e1) * b + 8.67072140885989742329e1) * b + 3.54937778887819891062e2
    q = ((q * b + 9.75708501743205489753e2) * b + 1.82390916687909736289e3) * b + 2.24633760818710981792e3
    p, q = (
        (p * b + 1.02755188689515710272e3) * b + 5.57535335369399327526e2,
        (q * b + 1.65666309194161350182e3) * b + 5.57535340817727675546e2,
    )
    r = ((5.64189583547755073984e-1 * b + 1.27536670759978104416) * b + 5.01905042251180477414) * b + 6.16021097993053585195
    s = ((b + 2.26052863220117276590) * b + 9.39603524938001434673) * b + 1.20489539808096656605e1
    r = (r * b + 7.40974269950448939160) * b + 2.97886665372100240670
    s = ((s * b + 1.70814450747565897222e1) * b + 9.60896809063285878198) * b + 3.36907645100081516050
    far = b >= 8.0
    tail = curve * (select(far, r, p) / select(far, s, q))
    return select(a < 1.0, 1.0 - erf(x), select(x < 0.0, 2.0 - tail, tail))


def quantile_middle(r):
    """The normal quantile of 1/2 + q divided by q, for r = 0.180625 - q * q and |q| <= 0.425."""
    a = ((2509.0809287301226727 * r + 33430.575583588128105) * r + 67265.770927008700853) * r + 45921.953931549871457
    b = ((5226.4952788528545610 * r + 28729.085735721942674) * r + 39307.895800092710610) * r + 21213.794301586595867
    a = (((a * r + 13731.693765509461125) * r + 1971.5909503065514427) * r + 133.14166789178437745) * r + 3.3871328727963666080
    return a / ((((b * r + 5394.1960214247511077) * r + 687.18700749205790830) * r + 42.313330701600911252) * r + 1.0)


def quantile_tail(s):
    """The same of the tail exp(-s * s), for s <= 5."""
    r = s - 1.6
    c = ((7.74545014278341407640e-4 * r + 0.0227238449892691845833) * r + 0.241780725177450611770) * r + 1.27045825245236838258
    d = ((1.05075007164441684324e-9 * r + 5.475938084995344946e-4) * r + 0.0151986665636164571966) * r + 0.148103976427480074590
    c = (((c * r + 3.64784832476320460504) * r + 5.76949722146069140550) * r + 4.63033784615654529590) * r + 1.42343711074968357734
    return c / ((((d * r + 0.689767334985100004550) * r + 1.67638483018380384940) * r + 2.05319162663775882187) * r + 1.0)


def quantile_far(s):
    """The same for s > 5."""
    r = s - 5.0
    e = ((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r + 0.00124266094738807843860) * r + 0.0265321895265761230930
    f = ((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4
    e = (((e * r + 0.296560571828504891230) * r + 1.78482653991729133580) * r + 5.46378491116411436990) * r + 6.65790464350110377720
    return e / ((((f * r + 0.0148753612908506148525) * r + 0.136929880922735805310) * r + 0.599832206555887937690) * r + 1.0)


def erfinv_of(x):
    a, q = abs(x), 0.5 * x
    s = sqrt(-log(0.5 * (1.0 - a)))
    s = select(s < 9.0, s, 9.0)  # at an end, which is chosen below, and beyond
    tail = select(s > 5.0, quantile_far(s), quantile_tail(s))
    y = 0.7071067811865476 * select(a <= 0.85, q * quantile_middle(0.180625 - q * q), copysign(tail, x))
    return select(a < 1.0, y, select(a == 1.0, copysign(INF, x), NAN))


# ---- the gamma function ----------------------------------------------------------------------------------------------------------------
def sine_of_pi(x):
    """sin(pi * x)."""
    n = rint(x)
    s = sin(PI * (x - n))
    return select(0.5 * n == floor(0.5 * n), s, -s)


def sinc_slope(x):
    """The derivative of sin(pi * x) / (pi * x) near 0, where the formula subtracts what is alike, by its series."""
    t = PI * PI * x * x
    p = ((4.49833160695283e-14 * t - 1.0 / 93405312000.0) * t + 1.0 / 518918400.0) * t - 1.0 / 3991680.0
    return PI * PI * x * ((((p * t + 1.0 / 45360.0) * t - 1.0 / 840.0) * t + 1.0 / 30.0) * t - 1.0 / 3.0)


def lgamma_near(t):
    """log(gamma(2 + t)) for |t| <= 1/2: a minimax fit of our own."""
    p = ((-5.72865310850800948e-7 * t + 1.21596206027450146e-6) * t - 1.98256562073919606e-6) * t + 4.25537028431104825e-6
    p = (((p * t - 9.45293847371457617e-6) * t + 2.05355810205005227e-5) * t - 4.49244353589878726e-5) * t + 9.94537136884163252e-5
    p = (((p * t - 2.23154894638091171e-4) * t + 5.09669811943211587e-4) * t - 1.19275390625985813e-3) * t + 2.8905103192621994e-3
    p = (((p * t - 7.38555102877146822e-3) * t + 2.05808084279901218e-2) * t - 6.73523010531975868e-2) * t + 0.322467033424112146
    return t * (p * t + 0.422784335098467139)


def lgamma_above(x):
    """log(gamma(x)) for x >= 1/2: by steps of 1 to within 1/2 of 2; from 8 on Stirling's series."""
    z, factor = select(x < 1.5, x + 1.0, x), select(x < 1.5, 1.0 / x, 1.0)
    for _ in range(6):
        down = z >= 2.5
        factor = select(down, factor * (z - 1.0), factor)
        z = select(down, z - 1.0, z)
    near = log(factor) + lgamma_near(z - 2.0)
    r = 1.0 / x
    w = r * r
    s = ((8.11614167470508450300e-4 * w - 5.95061904284301438324e-4) * w + 7.93650340457716943945e-4) * w - 2.77777777730099687205e-3
    far = (x - 0.5) * (log(x) - 1.0) + (0.41893853320467274178 + r * (s * w + 8.33333333333331927722e-2))
    return select(x < 8.0, near, far)


def lgamma_of(x):
    low = x < 0.5  # gamma(x) * gamma(1 - x) * sin(pi * x) = pi
    y = lgamma_above(select(low, 1.0 - x, x))
    y = select(low, 1.1447298858494002 - log(abs(sine_of_pi(x))) - y, y)
    return select(abs(x) == INF, INF, y)


def digamma_of(x):
    """The derivative of lgamma: steps of 1 up to 10, then its series; below 0 from the other side."""
    low = x <= 0.0
    z, y = select(low, 1.0 - x, x), 0.0
    for _ in range(10):
        up = z < 10.0
        y = select(up, y - 1.0 / z, y)
        z = select(up, z + 1.0, z)
    w = 1.0 / (z * z)
    s = ((8.33333333333333333333e-2 * w - 2.10927960927960927961e-2) * w + 7.57575757575757575758e-3) * w - 4.16666666666666666667e-3
    s = ((s * w + 3.96825396825396825397e-3) * w - 8.33333333333333333333e-3) * w + 8.33333333333333333333e-2
    y = y + log(z) - 0.5 / z - s * w
    r = PI * select(low, x - rint(x), 0.5)  # not near 0 where it is not wanted: 0 times infinity in derivatives
    y = select(low, y - PI * cos(r) / sin(r), y)
    return select(x == 0.0, -copysign(INF, x), select(x == INF, INF, select(low & (r == 0.0), NAN, y)))


def trigamma_of(x):
    """The second derivative of lgamma."""
    low = x <= 0.0
    z, y = select(low, 1.0 - x, x), 0.0
    for _ in range(10):
        up = z < 10.0
        y = select(up, y + 1.0 / (z * z), y)
        z = select(up, z + 1.0, z)
    w = 1.0 / (z * z)
    s = ((1.16666666666666666667 * w - 0.253113553113553113553) * w + 7.57575757575757575758e-2) * w - 3.33333333333333333333e-2
    s = ((s * w + 2.38095238095238095238e-2) * w - 3.33333333333333333333e-2) * w + 0.166666666666666666667
    y = y + (1.0 / z + w * (0.5 + s / z))
    t = PI / sine_of_pi(select(low, x, 0.5))
    return select(low, t * t - y, y)
