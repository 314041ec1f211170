#!/usr/bin/env python3
"""Prints the polynomial coefficients of src/device/simd/vmath.h: interpolation at Chebyshev nodes in 60 digits."""
from mpmath import mp, mpf, cos, pi, exp, log, log1p, sqrt, tanh, erf, erfc, matrix, lu_solve

mp.dps = 60


def fit(name, f, low, high, degree):
    low, high = mpf(low), mpf(high)
    n = degree + 1
    x = [(low + high) / 2 + (high - low) / 2 * cos(pi * (2 * i + 1) / (2 * n)) for i in range(n)]
    a = matrix(n, n)
    b = matrix(n, 1)
    for i in range(n):
        for j in range(n):
            a[i, j] = x[i] ** j
        b[i] = f(x[i])
    c = lu_solve(a, b)
    grid = [low + (high - low) * (i + mpf(1) / 2) / 2000 for i in range(2000)]
    worst = max(abs(sum(c[j] * t**j for j in range(n)) - f(t)) for t in grid)
    print(f"{name}: largest error {mp.nstr(worst, 3)}")
    print("  " + ", ".join(mp.nstr(v, 10) + "f" for v in c))


half = log(2) / 2 * mpf("1.0001")
fit("exp: (e^r - 1 - r) / r^2", lambda r: (exp(r) - 1 - r) / r**2 if abs(r) > 1e-20 else mpf("0.5"), -half, half, 4)
fit("log: (log(1+f) - f + f^2/2) / f^3", lambda f: (log1p(f) - f + f * f / 2) / f**3, sqrt(mpf(1) / 2) - 1, sqrt(2) - 1, 8)
fit("tanh: (tanh(sqrt z)/sqrt z - 1) / z", lambda z: (tanh(sqrt(z)) / sqrt(z) - 1) / z, 0, mpf("0.625") ** 2, 5)
fit("erf: erf(sqrt z)/sqrt z - 1", lambda z: erf(sqrt(z)) / sqrt(z) - 1, 0, 1, 6)
fit("erfc: log(erfc(2.5 + u))", lambda u: log(erfc(u + mpf("2.5"))), -1.5, 1.5, 9)
print("ln2 high (upper 15 bits), low:", mp.nstr(mpf("0.693359375"), 12), mp.nstr(log(2) - mpf("0.693359375"), 20))
