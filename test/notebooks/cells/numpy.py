# %% arrays and their reprs
import numpy as np
a = np.arange(12).reshape(3, 4)
a
# %%
a.sum(axis=0), a.mean(), a.dtype, a.shape
# %%
np.linspace(0, 1, 5)
# %% a large array is abbreviated
np.arange(10_000).reshape(100, 100)
# %% random numbers with a seed
rng = np.random.default_rng(7)
x = rng.normal(size=1000)
print(f"mean {x.mean():.3f}, std {x.std():.3f}")
np.histogram(x, bins=5)
# %% linear algebra
m = np.array([[2.0, 1.0], [1.0, 3.0]])
w, v = np.linalg.eigh(m)
print(w)
np.allclose(m @ v, v * w)
# %% a mask that is assigned shows nothing
mask = a % 2 == 0
even = a[mask];
# %%
even
# %% a warning
np.array([1.0, -1.0]) / 0
# %% a record array
people = np.array([("Ada", 36), ("Alan", 41)], dtype=[("name", "U10"), ("age", "i4")])
people["age"].max()
# %% scalars
np.float64(2) / 3
# %% an error
a @ a
# %% a missing value does not end the session
np.nanmean(np.array([1.0, np.nan, 3.0]))
