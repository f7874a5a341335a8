# %%
import numpy as np
import pandas as pd
import seaborn as sns
sns.set_theme()
rng = np.random.default_rng(3)
tips = pd.DataFrame({
    "total": rng.gamma(5, 4, 120).round(2),
    "size": rng.integers(1, 6, 120),
    "day": rng.choice(["Thu", "Fri", "Sat", "Sun"], 120),
    "smoker": rng.choice(["yes", "no"], 120),
})
tips["tip"] = (tips["total"] * rng.normal(0.16, 0.03, 120)).round(2)
tips.head()
# %%
sns.scatterplot(data=tips, x="total", y="tip", hue="smoker")
# %%
sns.histplot(tips["total"], kde=True)
# %%
ax = sns.boxplot(data=tips, x="day", y="total")
ax.set_title("by day")
# %% a grid of figures
sns.relplot(data=tips, x="total", y="tip", col="smoker", height=3)
# %%
sns.heatmap(tips[["total", "size", "tip"]].corr(), annot=True)
# %%
grid = sns.FacetGrid(tips, col="smoker", height=2.5)
grid.map(sns.histplot, "tip");
# %%
sns.pairplot(tips[["total", "tip", "size"]], height=1.5)
# %%
sns.countplot(data=tips, x="day", order=["Thu", "Fri", "Sat", "Sun"]);
# %%
sns.lmplot(data=tips, x="total", y="tip", height=3)
# %% a palette has an HTML repr
sns.color_palette("deep", 4)
# %% an error
sns.scatterplot(data=tips, x="total", y="tipp")
