# %%
from sympy import *
x, y, n = symbols("x y n")
x**2 + 2*x + 1
# %%
factor(x**2 + 2*x + 1)
# %%
diff(sin(x) * exp(x), x)
# %%
integrate(exp(-x**2), (x, -oo, oo))
# %%
solve(x**2 - 2, x)
# %%
Matrix([[1, 2], [3, 4]])
# %%
Matrix([[1, 2], [3, 4]]).eigenvals()
# %%
series(cos(x), x, 0, 6)
# %%
Eq(x + y, 3)
# %%
print(latex(Integral(sqrt(1 / x), x)))
# %%
limit(sin(x) / x, x, 0)
# %%
pprint(Rational(1, 3) + x / 2)
# %%
Sum(1 / n**2, (n, 1, oo)).doit().evalf(8)
# %% with printing set up
init_printing()
x**2 / 3
# %% an error
solve(x, x, foo)
# %% a plot
from sympy.plotting import plot
plot(x**2, (x, -2, 2), show=True);
