# %%
import numpy as np
from sklearn.datasets import load_iris, make_blobs
from sklearn.model_selection import cross_val_score, train_test_split
iris = load_iris(as_frame=True)
iris.frame.head()
# %%
X, y = iris.data, iris.target
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)
X_train.shape, X_test.shape
# %% an estimator has an HTML repr
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500))
model.fit(X_train, y_train)
# %%
model.score(X_test, y_test)
# %%
from sklearn.metrics import classification_report, confusion_matrix
print(classification_report(y_test, model.predict(X_test), target_names=iris.target_names))
# %%
confusion_matrix(y_test, model.predict(X_test))
# %%
from sklearn.metrics import ConfusionMatrixDisplay
ConfusionMatrixDisplay.from_estimator(model, X_test, y_test)
# %%
cross_val_score(model, X, y, cv=5).round(3)
# %%
from sklearn.ensemble import RandomForestClassifier
forest = RandomForestClassifier(n_estimators=20, random_state=0).fit(X_train, y_train)
dict(zip(X.columns, forest.feature_importances_.round(2).tolist()))
# %%
from sklearn.cluster import KMeans
import matplotlib.pyplot as plt
points, _ = make_blobs(n_samples=150, centers=3, random_state=1)
labels = KMeans(n_clusters=3, n_init=5, random_state=1).fit_predict(points)
plt.scatter(points[:, 0], points[:, 1], c=labels)
plt.title("clusters")
# %%
from sklearn.decomposition import PCA
PCA(n_components=2).fit(X).explained_variance_ratio_
# %% an error
from sklearn.svm import SVC
SVC().predict(X)
