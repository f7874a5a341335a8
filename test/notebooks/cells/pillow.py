# %%
from PIL import Image, ImageDraw, ImageFilter, ImageOps
im = Image.new("RGB", (120, 80), "white")
draw = ImageDraw.Draw(im)
draw.ellipse((20, 10, 100, 70), fill="red", outline="black")
im
# %%
im.size, im.mode, im.format
# %% transparency
ghost = im.convert("RGBA")
ghost.putalpha(120)
ghost
# %%
display(im.rotate(30), ImageOps.invert(im))
# %%
im.convert("L").filter(ImageFilter.GaussianBlur(3))
# %%
im.save("circle.png")
reread = Image.open("circle.png")
print(reread.format, reread.size)
# %% a file that was read
reread
# %%
im.getpixel((60, 40))
# %% one bit for each pixel
im.convert("1")
# %% thumbnails
small = im.copy()
small.thumbnail((32, 32))
small
# %%
im.histogram()[:4]
# %% the picture as an array in a figure
import matplotlib.pyplot as plt
import numpy as np
plt.imshow(np.asarray(im))
plt.axis("off");
# %% an error
Image.open("missing.png")
