# %%
import io
import numpy as np
import pandas as pd
text = """day,city,sold,price
2024-01-01,Oslo,10,2.5
2024-01-01,Bergen,7,2.7
2024-01-02,Oslo,12,2.5
2024-01-02,Bergen,,2.9
2024-01-03,Oslo,9,2.4
"""
df = pd.read_csv(io.StringIO(text), parse_dates=["day"])
df
# %%
df.dtypes
# %%
df.info()
# %%
df.describe()
# %%
df.groupby("city")["sold"].sum()
# %%
df["revenue"] = df["sold"] * df["price"]
df.head(2)
# %% a long and wide table
rng = np.random.default_rng(0)
wide = pd.DataFrame(rng.integers(0, 100, size=(1000, 30)), columns=[f"column_{i}" for i in range(30)])
wide
# %%
wide.shape
# %%
df.pivot_table(index="day", columns="city", values="sold", aggfunc="sum")
# %% two tables in one cell
display(df.isna().sum())
display(df.sort_values("price").tail(2))
# %%
df["city"].value_counts()
# %%
print(df.to_string(index=False))
# %%
df.set_index("day").loc["2024-01-02"]
# %% a plot of the library's own
ax = df.groupby("city")["sold"].mean().plot.bar(title="sold")
# %%
df.style.format({"price": "{:.1f}"}).hide(axis="index")
# %%
pd.date_range("2024-01-01", periods=3, freq="D")
# %% long texts in cells
pd.DataFrame({"text": ["word " * 40, "short"], "n": [1, 2]})
# %% an error
df["town"]
