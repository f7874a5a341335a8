# %%
import numpy as np
import pandas as pd
import statsmodels.api as sm
import statsmodels.formula.api as smf
rng = np.random.default_rng(11)
data = pd.DataFrame({"x": np.linspace(0, 10, 60), "group": np.tile(["a", "b"], 30)})
data["y"] = 1.5 * data["x"] + (data["group"] == "b") * 2 + rng.normal(0, 0.5, 60)
data.describe().round(2)
# %% a summary has an HTML repr
fit = smf.ols("y ~ x + group", data).fit()
fit.summary().tables[1]
# %%
fit.params
# %%
print(fit.summary().tables[0])
# %%
fit.conf_int()
# %%
fit.rsquared
# %%
sm.stats.anova_lm(fit)
# %%
fig = sm.qqplot(fit.resid, line="s")
# %%
fit.predict(pd.DataFrame({"x": [1.0, 2.0], "group": ["a", "b"]}))
# %%
fit.summary()
# %%
from statsmodels.tsa.stattools import adfuller
round(adfuller(data["y"].diff().dropna())[0], 3)
# %%
from statsmodels.graphics.tsaplots import plot_acf
plot_acf(data["y"], lags=10);
# %% an error
smf.ols("y ~ z", data).fit()
