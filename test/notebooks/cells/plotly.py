# %%
import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
df = pd.DataFrame({"x": [1, 2, 3, 4], "y": [4, 1, 3, 5], "kind": list("abab")})
df
# %% a chart as the last expression
px.scatter(df, x="x", y="y", color="kind", title="points")
# %% shown by a method
fig = px.line(df, x="x", y="y")
fig.show()
# %% changed and shown again
fig.update_layout(title="a line")
# %%
go.Figure(go.Bar(x=["a", "b"], y=[2, 3]))
# %% two charts
px.bar(df, x="kind", y="y").show()
px.histogram(df, x="y").show()
# %% assigned only
quiet = px.box(df, x="kind", y="y")
# %%
fig.layout.title.text
# %%
len(fig.data), fig.data[0].type
# %% a chart in a list is its repr
print(type(quiet).__name__)
quiet.layout.template is not None
# %%
px.imshow([[1, 2], [3, 4]])
# %% an error
px.scatter(df, x="x", y="z")
