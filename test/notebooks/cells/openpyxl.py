# %%
from openpyxl import Workbook, load_workbook
wb = Workbook()
ws = wb.active
ws.title = "Sales"
for row in [("month", "sold"), ("Jan", 10), ("Feb", 14), ("Mar", 9)]:
    ws.append(row)
ws
# %%
ws["B2"]
# %%
ws.dimensions, ws.max_row
# %%
from openpyxl.styles import Font
for cell in ws[1]:
    cell.font = Font(bold=True)
ws["B5"] = "=SUM(B2:B4)"
wb.save("sales.xlsx")
# %%
back = load_workbook("sales.xlsx")
back.sheetnames
# %%
[[c.value for c in row] for row in back["Sales"].iter_rows()]
# %%
import pandas as pd
pd.read_excel("sales.xlsx", nrows=3)
# %%
pd.DataFrame({"a": [1, 2], "b": ["x", "y"]}).to_excel("two.xlsx", index=False)
pd.read_excel("two.xlsx")
# %%
from openpyxl.chart import BarChart, Reference
chart = BarChart()
chart.add_data(Reference(ws, min_col=2, min_row=1, max_row=4), titles_from_data=True)
ws.add_chart(chart, "D2")
len(ws._charts)
# %% many rows
for n in range(500):
    back["Sales"].append((f"m{n}", n))
pd.DataFrame(back["Sales"].values)
# %%
for name in wb.sheetnames:
    print(name, wb[name].max_row)
# %% an error
wb["Costs"]
