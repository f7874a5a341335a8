# %% the first plot
import matplotlib.pyplot as plt
import numpy as np
x = np.linspace(0, 2 * np.pi, 100)
plt.plot(x, np.sin(x))
# %% a plot with show
plt.plot(x, np.cos(x), label="cos")
plt.legend()
plt.title("cosine")
plt.show()
# %% two figures of one cell
plt.figure(figsize=(3, 2))
plt.scatter(x[::10], np.sin(x[::10]))
plt.figure(figsize=(3, 2))
plt.hist(np.sin(x), bins=8);
# %% a figure as the last expression
fig, ax = plt.subplots()
ax.bar(["a", "b", "c"], [3, 1, 2])
ax.set_ylabel("count")
fig
# %% text between two figures
plt.plot([1, 2, 3])
plt.show()
print("between")
plt.plot([3, 2, 1])
plt.show()
# %% a grid of axes
fig, axes = plt.subplots(2, 2, figsize=(5, 4), sharex=True)
for k, one in enumerate(axes.flat):
    one.plot(x, np.sin(x * (k + 1)))
fig.tight_layout()
# %% a figure of an earlier cell again
fig
# %% an image
plt.imshow(np.outer(np.sin(x), np.cos(x)), cmap="viridis")
plt.colorbar();
# %% an axis that is set is returned
plt.xlim(0, 1)
# %% closed, hence not shown
fig = plt.figure()
plt.plot([1, 2])
plt.close(fig)
# %% a figure and an error
plt.plot([1, 2, 3])
raise ValueError("after the plot")
# %% a figure that is closed after it was saved
fig, ax = plt.subplots()
ax.pie([1, 2, 3], labels=["x", "y", "z"])
fig.savefig("pie.png")
plt.close(fig)
# %% a figure that was saved and stays open
fig, ax = plt.subplots()
ax.plot([1, 4, 9])
fig.savefig("squares.png");
# %% display of a figure
fig, ax = plt.subplots()
ax.plot([1, 2, 4])
display(fig)
plt.close(fig)
